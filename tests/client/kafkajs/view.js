// node view.js BOOTSTRAP VIEW COUNT: read COUNT messages of a view and the position at which its reader then stands.
const { Kafka, logLevel } = require("kafkajs")

const main = async () => {
  const [bootstrap, topic, count] = process.argv.slice(2)
  const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({ groupId: `js-${topic}`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = []
  let done
  const all = new Promise((resolve) => (done = resolve))
  await consumer.run({ eachMessage: async ({ partition, message }) => {
    seen.push([partition, Number(message.offset), message.value.toString()])
    if (seen.length === Number(count)) done()
  } })
  await all
  await consumer.disconnect()
  console.log(JSON.stringify(seen))
}
main().catch((problem) => { console.error(problem); process.exit(1) })
