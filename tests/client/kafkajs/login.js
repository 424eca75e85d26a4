// node login.js JSON: publish and read back as a user; exit 3 when the broker does not take us for it.
const fs = require("fs")
const { Kafka, logLevel } = require("kafkajs")

const main = async () => {
  const { bootstrap, mechanism, user, password, ca, topic, count } = JSON.parse(process.argv[2])
  const kafka = new Kafka({
    clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2 },
    ssl: ca ? { ca: [fs.readFileSync(ca)] } : undefined, sasl: { mechanism, username: user, password },
  })
  const producer = kafka.producer()
  try {
    await producer.connect()
  } catch (problem) {
    console.error(problem.name, problem.message)
    process.exit(/SASL|uthentication/.test(`${problem.name} ${problem.message}`) ? 3 : 1)
  }
  const messages = Array.from({ length: count }, (_, i) => ({ value: String(i) }))
  await producer.send({ topic, messages })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `g-${topic}` })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = []
  let done
  const all = new Promise((resolve) => (done = resolve))
  await consumer.run({ eachMessage: async ({ message }) => {
    seen.push(Number(message.value.toString()))
    if (seen.length === count) done()
  } })
  await all
  await consumer.disconnect()
  console.log(JSON.stringify(seen))
}
main().catch((problem) => { console.error(problem); process.exit(1) })
