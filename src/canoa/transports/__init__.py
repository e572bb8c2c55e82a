"""How a manager reaches one node: over AMQP, MQTT or HTTP, behind one port."""
