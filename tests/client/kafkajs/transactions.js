// node transactions.js BOOTSTRAP SOURCE SINK COUNT: copy COUNT messages, one transaction each; every third is aborted first.
const { Kafka, logLevel } = require("kafkajs")

const main = async () => {
  const [bootstrap, source, sink, count] = process.argv.slice(2)
  const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR })
  const producer = kafka.producer({ transactionalId: `js-${source}`, idempotent: true, maxInFlightRequests: 1 })
  const consumer = kafka.consumer({ groupId: `js-${source}`, readUncommitted: false })
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topic: source, fromBeginning: true })
  let done = 0
  const finished = new Promise((resolve, reject) => consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      try {
        if (done >= Number(count)) return
        const copy = async (value) => {
          const transaction = await producer.transaction()
          await transaction.send({ topic: sink, messages: [{ value }] })
          const offset = String(Number(message.offset) + 1)
          const topics = [{ topic: source, partitions: [{ partition, offset }] }]
          await transaction.sendOffsets({ consumerGroupId: `js-${source}`, topics })
          return transaction
        }
        if (done % 3 === 0) await (await copy("aborted")).abort()
        await (await copy(`js-${message.value}`)).commit()
        if (++done === Number(count)) resolve()
      } catch (problem) { reject(problem) }
    },
  }))
  await finished
  await consumer.disconnect()
  await producer.disconnect()
}

main().then(() => process.exit(0), (problem) => { console.error(problem); process.exit(1) })
