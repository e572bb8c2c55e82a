"""How a store's schema came to be, one revision after the other. Shipped, and run by `canoa.store.migrating`."""
