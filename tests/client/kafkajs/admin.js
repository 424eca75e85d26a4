// node admin.js BOOTSTRAP TOPIC: every admin call of kafkajs that a single broker serves; prints what was answered.
const { Kafka, logLevel, ConfigResourceTypes } = require("kafkajs")

const main = async () => {
  const [bootstrap, topic] = process.argv.slice(2)
  const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  await admin.connect()
  const report = {}
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
  report.again = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] })
  report.badName = await admin.createTopics({ topics: [{ topic: "no good!" }] }).then(() => null, (e) => e.errors ? e.errors[0].type : e.type)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  report.grown = metadata.topics[0].partitions.length
  const cluster = await admin.describeCluster()
  report.controller = cluster.controller
  report.brokers = cluster.brokers.length
  const change = (name, value) => admin.alterConfigs({ validateOnly: false, resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }] })
  await change("retention.ms", "5000")
  report.wrongConfig = await change("retention.ms", "soon").then(() => false, () => true)
  const configs = await admin.describeConfigs({ includeSynonyms: true,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }] })
  report.retention = configs.resources[0].configEntries[0].configValue
  const producer = kafka.producer()
  await producer.connect()
  const messages = []
  for (let i = 0; i < 20; i++) messages.push({ value: `v${i}`, partition: 0, timestamp: String(1750000000000 + i) })
  await producer.send({ topic, messages })
  await producer.disconnect()
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "5" }] })
  const ends = (await admin.fetchTopicOffsets(topic)).find((row) => row.partition === 0)
  report.offsets = { low: ends.low, high: ends.high }
  report.byTime = (await admin.fetchTopicOffsetsByTimestamp(topic, 1750000000012)).find((row) => row.partition === 0).offset
  const groupId = `g-${topic}`
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "3" }] })
  report.committed = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions.find((row) => row.partition === 0).offset
  report.state = (await admin.describeGroups([groupId])).groups[0].state
  await admin.deleteGroups([groupId])
  await admin.deleteTopics({ topics: [topic] })
  report.gone = !(await admin.listTopics()).includes(topic)
  await admin.disconnect()
  console.log(JSON.stringify(report))
}
main().catch((problem) => { console.error(problem); process.exit(1) })
