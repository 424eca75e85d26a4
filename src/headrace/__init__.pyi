from headrace.client.client import Client as Client
from headrace.client.message import Delivery as Delivery
from headrace.client.message import Message as Message
from headrace.client.message import Receipt as Receipt
from headrace.client.subscription import Subscription as Subscription
from headrace.client.worker import QueueMessage as QueueMessage
from headrace.client.worker import Reject as Reject
from headrace.core.errors import HeadraceError as HeadraceError

__version__: str
