// Node.js: the path as most small programs take it, and, if it is installed, Express with its own.
'use strict';
const [kind, port] = process.argv.slice(2);
const say = (res, read) => { res.setHeader('X-Reads', read); res.end(); };
let handler;
switch (kind) {
case 'url': // the WHATWG parser
  handler = (req, res) => {
    const p = new URL('http://h' + req.url).pathname;
    say(res, p === '/admin' || p.startsWith('/admin/') ? 'admin' : 'other');
  };
  break;
case 'decoded': // a static file server: decoded, then normalized
  handler = (req, res) => {
    let p;
    try { p = require('path').posix.normalize(decodeURIComponent(req.url.split('?')[0])); } catch { res.statusCode = 400; return res.end(); }
    say(res, p === '/admin' || p.startsWith('/admin/') ? 'admin' : 'other');
  };
  break;
case 'windows': // the same with the separators of Windows
  handler = (req, res) => {
    let p;
    try { p = require('path').win32.normalize(decodeURIComponent(req.url.split('?')[0])).toLowerCase(); } catch { res.statusCode = 400; return res.end(); }
    say(res, p === '\\admin' || p.startsWith('\\admin\\') ? 'admin' : 'other');
  };
  break;
case 'express': {
  const express = require('express');
  handler = express();
  handler.use('/admin', (req, res) => say(res, 'admin'));
  handler.use((req, res) => say(res, 'other'));
  break;
}
}
require('http').createServer(handler).listen(Number(port), '127.0.0.1');
process.stdin.on('end', () => process.exit()).resume();
