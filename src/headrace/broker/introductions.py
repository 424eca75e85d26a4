"""Driver: connections to other brokers, which begin with a proof of who is at either end (core.peer_proof; A1, A2, A49).

A proof is bound to the two registrations. A broker that registers again proves itself again: its older connections speak
for a life that is over, and are refused what only brokers may ask.
"""

from __future__ import annotations

from headrace.broker.metadata import Metadata
from headrace.broker.peer import PeerConnection, PeerLost
from headrace.broker.runtime import Runtime
from headrace.core import principals
from headrace.core.cluster_key import PEER_CONNECTIONS, derive
from headrace.core.errors import ErrorKind
from headrace.core.peer_proof import MECHANISM, NONCE_BYTES, Answerer, BadProof, Hello, answer_challenge
from headrace.core.principals import Principal
from headrace.net.tls import PeerTls
from headrace.wire.api import ApiKey
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PROOF_S = 5.0


class PeerUnproven(PeerLost):
    """Somebody listens there who is not the broker we look for, or does not take us for who we are."""


class Introductions:
    def __init__(
        self, runtime: Runtime, metadata: Metadata, cluster_key: bytes, tls: PeerTls | None = None
    ) -> None:
        """`tls`: of connections to others; they are proven inside it as they are without, and by certificates too (A49)."""
        self._tls = tls
        self.broker_epoch = 0
        """Of our current registration."""
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._key = derive(cluster_key, PEER_CONNECTIONS)

    # -- calling -------------------------------------------------------------------------------------------------

    async def connect(self, broker_id: int) -> PeerConnection:
        """A connection at whose ends are that broker and we, both proven. Raises PeerLost, PeerRefused, PeerUnproven."""
        node = self._image.broker(broker_id)
        if node is None:
            raise PeerLost(f"broker {broker_id} is not registered")
        me = self._image.broker_id
        place = node.registration
        context = None if self._tls is None else self._tls.context
        connection = await PeerConnection.open(place.host, place.port, f"broker-{me}", context)
        nonce = self._runtime.random_bytes(NONCE_BYTES)
        try:
            self.need_certified(broker_id, connection.certified_broker)
            await self._prove(connection, Hello(me, self.broker_epoch, broker_id, node.epoch, nonce))
        except BadProof as problem:
            connection.close()
            raise PeerUnproven(f"broker {broker_id} can't be introduced to: {problem}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def _prove(self, connection: PeerConnection, hello: Hello) -> None:
        shaken: SaslHandshakeResponse = await connection.call(
            ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(MECHANISM), PROOF_S
        )
        if shaken.error_code:
            raise BadProof(f"it does not know the mechanism {MECHANISM}")
        challenge = await self._exchange(connection, hello.encode())
        await self._exchange(connection, answer_challenge(self._key, hello, challenge))

    async def _exchange(self, connection: PeerConnection, token: bytes) -> bytes:
        answer: SaslAuthenticateResponse = await connection.call(
            ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token), PROOF_S
        )
        if answer.error_code:
            raise BadProof(answer.error_message or ErrorKind(answer.error_code).name)
        return bytes(answer.auth_bytes)

    # -- being called --------------------------------------------------------------------------------------------

    def challenge(self, token: bytes) -> Answerer:
        """Raises BadProof when the caller looks for somebody else, or for an earlier life of ours."""
        hello = Hello.decode(token)
        if (hello.answerer, hello.answerer_epoch) != (self._image.broker_id, self.broker_epoch):
            raise BadProof("this is another broker, or another life of it")
        return Answerer(self._key, hello, self._runtime.random_bytes(NONCE_BYTES))

    def need_certified(self, claimed: int, certified: int) -> None:
        """Raises BadProof. The cluster's key lies in the coordinator; the key of a certificate lies with one broker."""
        if self._tls is not None and self._tls.by_certificate and certified != claimed:
            raise BadProof(f"it shows no certificate of broker {claimed}")

    async def admit(self, answerer: Answerer, proof: bytes, certified: int) -> Principal:
        """`certified`: which broker its certificate is of. Raises BadProof; HeadraceError or CoordinatorError when it can't be
        found out now."""
        answerer.check(proof)
        hello = answerer.hello
        self.need_certified(hello.asker, certified)
        if self._registered_epoch(hello.asker) != hello.asker_epoch:
            # It has the cluster's key; perhaps its registration is news to us.
            await self._metadata.load()
        if self._registered_epoch(hello.asker) != hello.asker_epoch:
            raise BadProof(f"broker {hello.asker} is not registered with epoch {hello.asker_epoch}")
        return principals.broker(hello.asker, hello.asker_epoch)

    def refusal(self, caller: Principal) -> ErrorKind | None:
        """Why a request that only brokers may send is not heard from `caller`.

        A registration that has ended is no reason: leases say when we notice, not what is legal (R8), and what such a
        broker asks is judged by epochs. One that was replaced is.
        """
        if not caller.is_broker:
            return ErrorKind.CLUSTER_AUTHORIZATION_FAILED
        node = self._image.broker(caller.broker_id)
        if node is not None and node.epoch != caller.broker_epoch:
            return ErrorKind.STALE_BROKER_EPOCH
        return None

    def replica_refusal(
        self, caller: Principal, replica_id: int, broker_epoch: int | None = None
    ) -> ErrorKind | None:
        """The same for a request that claims to be replica `replica_id`'s; a claim below 0 is a consumer's."""
        if replica_id < 0:
            return None
        if (refused := self.refusal(caller)) is not None:
            return refused
        if caller.broker_id != replica_id:
            return ErrorKind.CLUSTER_AUTHORIZATION_FAILED
        if broker_epoch is not None and broker_epoch != caller.broker_epoch:
            return ErrorKind.STALE_BROKER_EPOCH
        return None

    def _registered_epoch(self, broker_id: int) -> int:
        node = self._image.broker(broker_id)
        return -1 if node is None else node.epoch
