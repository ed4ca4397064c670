// An HTTP server on Node's own parser (llhttp, strict) that answers every request with what it read. It prints its port.
'use strict'
const http = require('node:http')

const latin = (chunks) => Buffer.concat(chunks).toString('latin1')

const server = http.createServer({ maxHeaderSize: 256 << 10, insecureHTTPParser: false }, (req, res) => {
  const chunks = []
  req.on('data', (c) => chunks.push(c))
  req.on('end', () => {
    const fields = (raw) => {
      const list = []
      for (let i = 0; i < raw.length; i += 2) list.push({ Name: raw[i], Value: raw[i + 1] })
      return list
    }
    const body = JSON.stringify({ Method: req.method, Target: req.url, Fields: fields(req.rawHeaders), Trailers: fields(req.rawTrailers), Body: latin(chunks) })
    // The reading goes into a field: an answer to HEAD has no content.
    res.setHeader('X-Reading', Buffer.from(body).toString('base64'))
    if (req.headers.upgrade) res.setHeader('Connection', 'close')
    res.end()
  })
})
server.maxHeadersCount = 0
server.on('clientError', (err, socket) => {
  if (socket.writable) socket.end('HTTP/1.1 400 ' + (err.code || 'error') + '\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')
  else socket.destroy()
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.on('end', () => process.exit(0)).resume()
