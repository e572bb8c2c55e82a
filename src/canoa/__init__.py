"""Canoa runs Python functions where they belong, from edge to cloud, over the broker you already trust.

These are the public names; everything else may change. Parts that need more (workers, brokers) are imported when used.
"""

from canoa.action import Action, Args
from canoa.app import Canoa
from canoa.client.handle import Handle
from canoa.context import Context
from canoa.errors import (
    ActionDefinitionError,
    ActionFailed,
    ActionTimedOut,
    ArgumentsRefused,
    BrokerBlocked,
    BrokerRefusedLogin,
    BrokerRefusedMessage,
    BrokerRefusedOperation,
    BrokerUnreachable,
    CanoaError,
    DeliveryUnknown,
    DoNotRetry,
    NobodyKeeps,
    PayloadTooLarge,
    PlanRefused,
    QueueMissing,
    ResultNotReady,
    SettingError,
    TaskCancelled,
    TaskEnded,
    TaskExpired,
    TaskPoisoned,
    TaskRefused,
    Undecodable,
    UnknownAction,
    UnknownTask,
    WrongUse,
)
from canoa.execution.placement import Placement
from canoa.execution.policy import Backoff, Concurrency, Rate
from canoa.vocabulary import Layer

__all__ = [
    "Action",
    "ActionDefinitionError",
    "ActionFailed",
    "ActionTimedOut",
    "Args",
    "ArgumentsRefused",
    "Backoff",
    "BrokerBlocked",
    "BrokerRefusedLogin",
    "BrokerRefusedMessage",
    "BrokerRefusedOperation",
    "BrokerUnreachable",
    "Canoa",
    "CanoaError",
    "Concurrency",
    "Context",
    "DeliveryUnknown",
    "DoNotRetry",
    "Handle",
    "Layer",
    "NobodyKeeps",
    "PayloadTooLarge",
    "Placement",
    "PlanRefused",
    "QueueMissing",
    "Rate",
    "ResultNotReady",
    "SettingError",
    "TaskCancelled",
    "TaskEnded",
    "TaskExpired",
    "TaskPoisoned",
    "TaskRefused",
    "Undecodable",
    "UnknownAction",
    "UnknownTask",
    "WrongUse",
]
