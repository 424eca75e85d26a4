// node round_trip.js BOOTSTRAP TOPIC CODEC COUNT: publish COUNT messages, read them back, print what came.
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require("kafkajs")
const snappy = require("snappyjs"), lz4 = require("lz4js")

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
                 lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD }
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: async (encoder) => Buffer.from(snappy.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(snappy.uncompress(buffer)),
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})

const main = async () => {
  const zstd = await new Promise((ready) => require("zstd-codec").ZstdCodec.run((z) => ready(new z.Simple())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  })
  const [bootstrap, topic, codec, count] = process.argv.slice(2)
  const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const total = Number(count)
  for (let start = 0; start < total; start += 1000) {
    const messages = []
    for (let i = start; i < Math.min(total, start + 1000); i++)
      messages.push({ key: `k${i % 50}`, value: `value-${i}`, headers: { n: String(i) } })
    await producer.send({ topic, compression: codecs[codec], messages })
  }
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `g-${topic}` })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const seen = []
  let done
  const all = new Promise((resolve) => (done = resolve))
  await consumer.run({ eachMessage: async ({ partition, message }) => {
    seen.push([partition, message.key.toString(), message.value.toString(), message.headers.n.toString()])
    if (seen.length === total) done()
  } })
  await all
  await consumer.commitOffsets([])
  await consumer.disconnect()
  const groups = (await admin.listGroups()).groups.map((g) => g.groupId)
  const offsets = await admin.fetchTopicOffsets(topic)
  const configs = await admin.describeConfigs({ resources: [{ type: 2, name: topic }], includeSynonyms: false })
  await admin.deleteGroups([`g-${topic}`])
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
  console.log(JSON.stringify({ seen, groups, offsets, configs: configs.resources[0].configEntries.length }))
}
main().catch((problem) => { console.error(problem); process.exit(1) })
