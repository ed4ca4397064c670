package access

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// way is a way around a rule: bytes of HTTP/1.1 for a connection of the client that has rules.
type way struct {
	category, name string
	bytes          string
	// most is how many requests of it may reach the backend.
	most int
}

// targets are request targets that a server may read otherwise than a rule. Each is sent over HTTP/1.1 and as :path.
var targets = map[string][]string{
	"dots": {
		"/public/../admin", "/public/./../admin", "/public/a/../../admin", "/public/..", "/public/.", "/./admin", "/../admin", "/public/.../admin", "/team/../admin",
		"/team/x/../../admin", "/team/./../internal", "/team/..", "/team/../", "/team/.././admin", "/team/x/../../../../admin", "/public/a/..", "/..//admin",
		"/team/x/.", "/team/x./y", "/team/../team/../admin",
	},
	"escaped dots": {
		"/public/%2e%2e/admin", "/public/%2E%2E/admin", "/public/.%2e/admin", "/public/%2e./admin", "/public/%2e/a", "/team/%2e%2e/admin", "/team/%2E./admin", "/team/.%2E/admin",
		"/team/%2e%2e%2fadmin", "/team/..%2fadmin", "/team/..%2Fadmin", "/team/x%2f..%2f..%2fadmin", "/team/%2e%2e%5cadmin", "/team/..%5cadmin", "/team/..%5Cadmin",
	},
	"slashes": {
		"//admin", "///admin", "/public//a", "/public//../admin", "//public/a", "/team//../admin", "/team//..//admin", "/team//x", "//team/x", "/public/a/", "/public/a//",
		"/public%2fa", "/public%2Fa", "/public/%2fadmin", "/public/a%2f..%2f..%2fadmin", "/%2fadmin", "/%2f%2fadmin", "/team%2f..%2fadmin", "/team/%2f..%2f..%2fadmin", "/team/x%2fy",
		"//cart.shop/admin", "//admin/../public/a", "/team/x//y",
	},
	"backslashes": {
		`/public\..\admin`, `/public/..\admin`, `/public/%5c..%5cadmin`, `/team/..\..\admin`, `/team\..\admin`, `\admin`, `/\admin`, `/%5cadmin`, `/%5Cadmin`, `/public%5ca`,
		`/team/x\..\..\admin`, `/team/%5c%2e%2e%5cadmin`, `/public/a\`, `/team/x\y`,
	},
	"double escapes": {
		"/public/%252e%252e/admin", "/public/%252e%252e%252fadmin", "/team/%252e%252e/admin", "/team/..%252fadmin", "/team/%25%32%65%25%32%65/admin", "/team/%%32%65%%32%65/admin",
		"/team/..%255cadmin", "/team/%252e%252e%252f%252e%252e%252fadmin", "/team/%25252e%25252e/admin", "/%2561dmin", "/public/%2561", "/public/%25", "/public/a%2500", "/team/%252f..%252fadmin",
		"/team/%2%65%2%65/admin", "/team/%25%2e/x",
	},
	"escapes": {
		"/%61dmin", "/%61%64%6d%69%6e", "/%41DMIN", "/public/%61", "/publi%63/a", "/%70ublic/../admin", "/public/%", "/public/%2", "/public/%zz", "/public/a%", "/team/%", "/team/%g1",
		"/team/%u002e%u002e/admin", "/team/%uff0e%uff0e/admin", "/public/a%3f", "/public/%3f/../admin", "/team/%3f/../../admin", "/team/..%3f/admin", "/internal%3f/public/a",
		"/admin%3fx=/public/a", "/team/%3Fx", "/public/a%26", "/public/a+", "/public/+", "/public/a%2b", "/team/+../admin", "/upload%2e", "/uploa%64/", "/%75pload", "/public/%2d",
	},
	"control characters": {
		"/public/a%00", "/public/%00a", "/public/a%00.html", "/admin%00/public/a", "/team/..%00/admin", "/team/%00../admin", "/team/.%00./admin", "/public/a%0a", "/public/a%0d%0aX-Team:%20a",
		"/public/a%0d", "/public/a%09", "/admin%0a/public/a", "/admin%0d%0a/public/a", "/team/%0d%0aHost:%20x", "/team/.%09./admin", "/team/.%0a./admin", "/public/a%7f", "/team/..%7f/admin",
		"/public/a%1b", "/public/a%20", "/public/%20a", "/team/..%20/admin", "/team/%20../admin", "/team/.. /admin", "/team/%c2%85/../admin", "/public/a%e2%80%a8", "/admin%0A/public/a",
	},
	"utf8": {
		"/team/..%c0%afadmin", "/team/%c0%ae%c0%ae/admin", "/team/%c0%ae%c0%ae%c0%afadmin", "/team/..%e0%80%afadmin", "/team/..%f0%80%80%afadmin", "/team/..%c1%9cadmin", "/team/%e0%80%ae%e0%80%ae/admin",
		"/public/%c0%a1", "/public/%c1%a1", "/%c1%a1dmin", "/public/%ff", "/team/%ff/../../admin", "/team/%ef%bc%8e%ef%bc%8e/x", "/public/%e2%84%aa", "/public/%c4%b1", "/public/\xc3\xa9", "/team/\xc0\xae\xc0\xae/admin",
		"/team/..\xc0\xafadmin", "/public/\xe2\x84\xaa", "/team/..\xefadmin", "/public/%ed%a0%80",
	},
	"parameters": {
		"/public/a;/../../admin", "/public/..;/admin", "/public/..;x=y/admin", "/team/..;/admin", "/team/..;/..;/admin", "/team/.;/../admin", "/;/admin", "/;x/admin", "/admin;", "/admin;x=/public/a",
		"/admin;/public/a", "/public;/a", "/public/a;jsessionid=1", "/public/a;.css", "/public/a%3b", "/team/..%3b/admin", "/team/..%3Bx/admin", "/team/x;/../../admin", "/team/x;y", "/team;x/../admin",
		"/team/;/..;/../admin", "/upload;x",
	},
	"fragments": {
		"/public/a#", "/public/a#/../../admin", "/admin#/public/a", "/admin#", "/team/#/../../admin", "/team/x#y", "/public/a%23", "/admin%23/public/a", "/public/a?x#/admin", "/upload#/admin", "#/public/a", "/#/public/a",
	},
	"queries": {
		"/admin?/public/a", "/admin?x=/../public/a", "/?/public/a", "/public/a?/../../admin", "/public/a?x=../../admin", "/public/a?%2f..%2f..%2fadmin", "/public/a?path=/admin", "/public/a??", "/public/a?\\..\\admin",
		"/public/a?%0d%0aX-Team:%20a", "/public/a?x=%00", "?/public/a", "/admin?%23/public/a", "/internal/?/team/x", "/public?/a", "/team/x?/../../admin",
	},
	"letters":  {"/PUBLIC/a", "/Public/a", "/public/A", "/ADMIN", "/Team/x", "/TEAM/../admin", "/UPLOAD", "/public/ADMIN", "/team/ADMIN", "/team/X"},
	"trailing": {"/admin.", "/admin/.", "/public/a.", "/public/a..", "/public./a", "/upload.", "/upload/", "/upload/x", "/team./x", "/team", "/team.", "/team/.", "/public/", "/public", "/public/a.b", "/public/a:$DATA", "/public/a::$DATA", "/team/x::$DATA", "/public/a~1"},
	"spaces":   {"/public/a /admin", "/admin /public/a", "/public/a ", " /public/a", "/public/a\t", "/team/x HTTP/1.1 /admin", "/public/a HTTP/1.1", "\t/public/a", "/public/a\v", "/public/a\x00", "/team/\x00", "/public/a\x7f"},
	"absolute": {
		"http://cart/admin", "https://cart/admin", "http://other.example/public/a", "http://cart:8081/public/a", "http://cart/public/../admin", "http://cart", "http://cart?/public/a", "http://cart#/public/a", "HTTP://cart/admin",
		"http:///admin", "http:/admin", "http:admin", "http://public/a", "http://cart/public/a@evil/admin", "http://user@cart/admin", "http://user:pw@cart/public/a", `http://cart\@evil/public/a`, "ftp://cart/public/a",
		"file:///admin", "http://[::1]/admin", "http://cart/%2e%2e/admin", "http://cart//admin", "http://cart;/public/a", "http://cart%2fadmin/public/a", "javascript:/public/a", "http://cart:99999/public/a", "http://cart:/admin", "http://127.0.0.1:8081/public/a",
		"cart:8080", "cart", "*", "http://*/admin", "http://cart/*",
	},
}

// head is a request of the client that has rules, with more fields.
func head(line string, fields ...string) string {
	return line + " HTTP/1.1\r\nHost: cart\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}

// ways are all over HTTP/1.1.
func ways() (all []way) {
	add := func(category string, most int, bytes ...string) {
		for _, b := range bytes {
			all = append(all, way{category, fmt.Sprintf("%s %.120q", category, b), b, most})
		}
	}
	for category, list := range targets {
		for _, target := range list {
			method := "GET"
			if strings.HasPrefix(target, "/upload") || strings.HasPrefix(target, "/uploa%") {
				method = "POST"
			}
			add(category, 1, head(method+" "+target, "X-Team: a"))
		}
	}
	for _, method := range []string{
		"get", "Get", "gET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "POST", "PROPFIND", "MOVE", "COPY", "LINK", "PURGE", "DEBUG", "TRACK", "GETX", "XGET", "GET\x00", "GET,DELETE", "G\tET", "GET\t", "\"GET\"", "GET:", "*",
		" GET", "\x00GET", "\xefGET", "DELETE\tGET", "M-SEARCH", "BREW", "_GET", "QUERY", "SEARCH",
	} {
		add("methods", 1, head(method+" /public/a"))
		add("methods", 1, head(method+" /team/a", "X-Team: a"))
	}
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x_http_method_override", "X-Http_Method-Override", "X_HTTP_METHOD", "X-METHOD_OVERRIDE"} {
		for _, method := range []string{"DELETE", "delete", "PUT", "GET, DELETE", " DELETE"} {
			add("method overrides", 1, head("POST /upload", name+": "+method, "Content-Length: 0"), head("GET /public/a", name+": "+method))
		}
		add("method overrides", 1, head("POST /upload", name+": POST", name+": DELETE", "Content-Length: 0"), "POST /upload HTTP/1.1\r\nHost: cart\r\nTransfer-Encoding: chunked\r\nTrailer: "+name+"\r\n\r\n0\r\n"+name+": DELETE\r\n\r\n")
	}
	for _, host := range []string{"CART", "cart.", "cart:8080", "cart:8081", "cart:0", "cart:", "cart:x", "other", "other.example:8081", "127.0.0.1", "[::1]", "cart@evil", "cart/../admin", "cart/admin", "cart, evil", "cart evil", "", " ", "cart\x00", "*", "cart#", "cart?x", "%63art", "cart\\evil", "-", "..", "cart..", "localhost:8081", "cart:80:80"} {
		for _, target := range []string{"/admin", "/public/a"} {
			add("hosts", 1, "GET "+target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		}
	}
	add("hosts", 1,
		"GET /admin HTTP/1.0\r\n\r\n", "GET /public/a HTTP/1.0\r\n\r\n", "GET /admin HTTP/1.1\r\n\r\n", "GET /public/a HTTP/1.1\r\n\r\n", "GET /public/a HTTP/1.1\r\nHost: cart\r\nHost: evil\r\n\r\n", "GET /public/a HTTP/1.1\r\nHost: cart\r\nHost: cart\r\n\r\n",
		"GET /public/a HTTP/1.1\r\nHost : cart\r\n\r\n", "GET /public/a HTTP/1.1\r\n Host: cart\r\n\r\n", "GET /public/a HTTP/1.1\r\nHost:\r\n cart\r\n\r\n", "GET /public/a HTTP/1.1\r\nhOST: cart\r\nHost:evil\r\n\r\n", "GET http://cart/public/a HTTP/1.1\r\nHost: evil\r\n\r\n",
		"GET /public/a HTTP/1.1\r\nX-Host: cart\r\n\r\n", "GET /public/a HTTP/1.1\r\nHost: cart\r\nH_ost: evil\r\nX-Forwarded-Host: evil\r\nX-Original-URL: /admin\r\n\r\n")
	for _, fields := range []string{
		"", "X-Team: c", "X-Team: A", "X-Team: ab", "X-Team: a,b", "X-Team: a, c", "X-Team: a;c", "X-Team: a\r\nX-Team: c", "X-Team: c\r\nX-Team: a", "X-Team: a\r\nX-Team: a", "X-Team:", "X-Team: ,a", "X-Team: \"a\"", "X-Team: a\r\n c", "X-Team:\r\n a", "X-Team:\ta\r\n\tc",
		"X_Team: a", "X_Team: c\r\nX-Team: a", "X-Team: a\r\nX_Team: c", "X.Team: a", "X-Team: a\r\nX.Team: c", "x_team: c\r\nx-team: b", "X-Team : a", " X-Team: a", "X-Team\t: a", "X-Team\x00: a", "X-Team: a\x00c", "X-Team: a\rX-Team: c", "X-Team: a\nX-Team: c", "X-Team: a\x0bc", "X-Team: a\x85",
		"X-Team=a", "X-Team", ": a", "X-Team: a\r\nConnection: X-Team", "X-Team: a\r\nConnection: close, x-team", "Connection: x-team\r\nX-Team: a", "X-Team: a\r\nConnection: keep-alive\r\nConnection: X-TEAM", "X-Team: a\r\nConnection: x_team\r\nX_Team: c", "X-Team: %61", "X-Team: =?utf-8?q?a?=",
		"X-Team: a\xa0", "X-Team: \xef\xbb\xbfa", "X-Team: a ", "X-Team:  a\t", "X-Team: a\r\nX-Team: ", "X-Team: \r\nX-Team: a", "X-Team-: a", "X--Team: a", "XTeam: a", "Xx-Team: a", "X-Team: a\r\nX~Team: c", "X-Team: a\r\nX!Team: c", "X-Team: a\r\nX_TEAM: a",
	} {
		add("fields", 1, head("GET /team/x", fields), head("GET /team/x?y", "Accept: x\r\n"+fields))
	}
	for _, trailer := range []string{"X-Team: c", "X-Team: a", "X_Team: c", "x-team: c", "X-Team: a\r\nX-Team: c", "Host: evil", "Content-Length: 5", "Transfer-Encoding: chunked", "Connection: x-team", "X-HTTP-Method-Override: DELETE", ":path: /admin"} {
		for _, fields := range []string{"X-Team: a\r\n", "X-Team: a\r\nTrailer: X-Team\r\n", ""} {
			add("trailers", 1, head("GET /team/x", fields+"TE: trailers\r\nTransfer-Encoding: chunked")+"1\r\nx\r\n0\r\n"+trailer+"\r\n\r\n")
		}
	}
	secret := head("GET /admin")
	for _, fields := range []string{
		"Content-Length: 0\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 4", "Content-Length: 4\r\nContent-Length: 0", "Content-Length: 0\r\nContent-Length: 40", "Content-Length: 0, 40", "Content-Length: +0", "Content-Length: -1", "Content-Length: 0x0", "Content-Length: 0 0", "Content-Length:",
		"Content-Length: 00", "Content-Length: 99999999999999999999", "Content-Length: 18446744073709551616", "Content-Length: 0;x", "Content-Length : 0", "Content_Length: 40", "Content-Length: 0\r\nContent_Length: 40", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, gzip", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding : chunked", "Transfer_Encoding: chunked", "Transfer-Encoding: CHUNKED", "Transfer-Encoding:\r\n chunked", " Transfer-Encoding: chunked",
		"Transfer-Encoding: chunked;x", "Transfer-Encoding: ,chunked", "Transfer-Encoding: chunked,", "Transfer-Encoding: chunked\x00", "X: y\rTransfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked", "Connection: Content-Length\r\nContent-Length: 40", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked", "Expect: 100-continue\r\nContent-Length: 0",
		"Expect: 100-continue\r\nContent-Length: 30", "Expect: 100-continue\r\nTransfer-Encoding: chunked", "Expect: x\r\nContent-Length: 5", "Content-Encoding: chunked",
	} {
		add("lengths", 1, head("POST /upload", fields)+"0\r\n\r\n"+secret, head("POST /upload", fields)+secret, head("GET /public/a", fields)+"0\r\n\r\n"+secret)
	}
	for _, chunks := range []string{
		"0\n\n", "0\r\r\n", "00\r\n\r\n", "0;x\r\n\r\n", "0;x=\"\r\n\r\n", "0;\r\r\n\r\n", "0;\n\r\n\r\n", "1\r\nxx\r\n0\r\n\r\n", "1\r\nx0\r\n\r\n", "2\r\nx\r\n0\r\n\r\n", "0x1\r\nx\r\n0\r\n\r\n", "+1\r\nx\r\n0\r\n\r\n", "-1\r\n\r\n", "1 \r\nx\r\n0\r\n\r\n", " 1\r\nx\r\n0\r\n\r\n", "g\r\n\r\n", "\r\n0\r\n\r\n",
		"ffffffffffffffff1\r\nx\r\n0\r\n\r\n", "10000000000000000\r\n\r\n", "1\r\nx\r\n0\r\n", "1\r\nx\n0\r\n\r\n", "1\nx\r\n0\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\n X: y\r\n\r\n", "1_0\r\nx\r\n0\r\n\r\n",
	} {
		add("chunks", 1, head("POST /upload", "Transfer-Encoding: chunked")+chunks+secret)
	}
	for _, denied := range []string{secret, head("DELETE /public/a"), head("POST /admin", "Content-Length: 0"), head("GET /team/x", "X-Team: c"), head("GET /team/x"), head("PUT /upload", "Content-Length: 0"), "GET /admin HTTP/1.0\r\n\r\n", "GET /admin HTTP/1.1\nHost: cart\n\n", "GET /admin\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		add("pipelines", 1, head("GET /public/a")+denied, denied+head("GET /public/a"), head("POST /upload", "Content-Length: "+fmt.Sprint(len(denied)))+denied, head("POST /upload", fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0", len(denied), denied)),
			head("GET /public/a", "Content-Length: "+fmt.Sprint(len(denied)))+denied, "\r\n"+head("GET /public/a")+"\r\n\r\n"+denied)
		add("pipelines", 2, head("GET /public/a")+denied+head("GET /public/b"), head("GET /team/x", "X-Team: a")+denied+head("POST /upload", "Content-Length: 1")+"x")
	}
	for _, upgrade := range []string{"websocket", "WebSocket", "h2c", "H2C", "h2c, websocket", "websocket, h2c", "HTTP/2.0", "http/2", "h2", "HTTP/1.1", "TLS/1.0", "TLS/1.2, HTTP/1.1", "tls", "spdy/3.1", "IRC/6.9", "connect-udp", "connect-ip", "custom", "\"h2c\"", "websocket\r\nUpgrade: h2c", "h2c\r\nUpgrade: websocket", "h2c;x", "x, h2c", "", ","} {
		for _, fields := range []string{"Connection: Upgrade", "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Connection: keep-alive", "Connection: Upgrade\r\nContent-Length: 0"} {
			add("upgrades", 1, head("GET /public/switch", fields, "Upgrade: "+upgrade, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")+secret)
		}
		add("upgrades", 1, head("GET /public/a", "Connection: Upgrade", "Upgrade: "+upgrade)+secret, head("GET /admin", "Connection: Upgrade", "Upgrade: "+upgrade)+secret)
	}
	for _, target := range []string{"cart:8080", "127.0.0.1:8081", "localhost:22", "/public/a", "/upload", "*", "http://cart/public/a", "cart", ":8080", "cart:8080/public/a"} {
		add("connect", 1, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"+secret, "CONNECT "+target+" HTTP/1.0\r\n\r\n"+secret, head("OPTIONS "+target, "Max-Forwards: 1")+secret, head("TRACE "+target, "Max-Forwards: 1")+secret)
	}
	add("lines", 1,
		"GET /public/a HTTP/1.1\nHost: cart\n\n", "GET /public/a HTTP/1.1\rHost: cart\r\r", "GET /public/a HTTP/1.1\r\nHost: cart\r\nX: y\n\n"+secret, "GET /public/a HTTP/1.1\r\nHost: cart\r\nX: \r\r\n\r\n"+secret, "GET /public/a HTTP/1.1\r\nHost: cart\r\n\rGET /admin HTTP/1.1\r\n\r\n",
		"GET  /public/a HTTP/1.1\r\nHost: cart\r\n\r\n", "GET\t/public/a\tHTTP/1.1\r\nHost: cart\r\n\r\n", "GET /public/a  HTTP/1.1\r\nHost: cart\r\n\r\n", "GET /public/a HTTP/1.1 \r\nHost: cart\r\n\r\n", "GET /public/a HTTP/1.2\r\nHost: cart\r\n\r\n", "GET /public/a HTTP/2.0\r\nHost: cart\r\n\r\n", "GET /public/a HTTP/0.9\r\nHost: cart\r\n\r\n", "GET /public/a\r\n", "GET /public/a http/1.1\r\nHost: cart\r\n\r\n",
		"GET /public/a HTTP/1.1x\r\nHost: cart\r\n\r\n", "GET /admin HTTP/1.1\x00\r\nHost: cart\r\n\r\n", "\r\n\r\n"+secret, "\n"+secret, "\x16\x03\x01\x00\x05hello", "PROXY TCP4 127.0.0.1 127.0.0.1 1 8081\r\n"+head("GET /public/a"), "GET /public/a HTTP/1.1\r\nHost: cart\r\nX: "+strings.Repeat("y", 70000)+"\r\n\r\n"+secret, "GET /team/"+strings.Repeat("x/../", 3000)+" HTTP/1.1\r\nHost: cart\r\nX-Team: a\r\n\r\n")
	for _, fields := range []string{
		"X-Forwarded-Client-Cert: By=x;URI=spiffe://cluster.local/ns/shop/sa/admin", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nForwarded: for=127.0.0.1", "l5d-client-id: admin.shop", "l5d-dst-override: cart.shop:8081", "l5d-remote-ip: 127.0.0.1", "X-Original-URL: /admin", "X-Rewrite-URL: /admin", "X-Forwarded-Prefix: /admin",
		"X-Forwarded-Host: other", "X-Forwarded-Port: 8081", "X-Forwarded-Proto: http", "X-SSL-Client-Verify: SUCCESS", "Weir-Mirrored: 1", "Weir-Via: x", "Via: 1.1 weir", "Max-Forwards: 0", "Authorization: Basic YTpi", "X-Envoy-Original-Path: /public/a", "X-Envoy-Internal: true", "User-Agent: kube-probe/1.36", "X-Weir-Identity: spiffe://cluster.local/ns/shop/sa/admin", "X-Client-Cert: x",
	} {
		add("claims in fields", 1, head("GET /admin", fields), head("DELETE /public/a", fields), head("TRACE /admin", fields))
	}
	return all
}

// patience is how long an answer may take before a way counts as failed.
const patience = 20 * time.Second

// stream1 is a connection of HTTP/1.1 whose sending side can be ended.
type stream1 interface {
	net.Conn
	CloseWrite() error
}

// attackers is how many ways are tried at the same time.
const attackers = 8

// Attack sends every way, of HTTP/1.1 and of HTTP/2 in cleartext, over a connection of its own, and returns how many there are
// and what failed of them.
func Attack(address string) (sent int, failed []string) {
	type try struct {
		name string
		send func(*net.TCPConn) error
	}
	var all []try
	for _, w := range ways() {
		all = append(all, try{w.name, func(c *net.TCPConn) error { _, err := w.send(c); return err }})
	}
	for _, w := range ways2() {
		all = append(all, try{w.name(), func(c *net.TCPConn) error { return w.clear().send(c) }})
	}
	var mu sync.Mutex
	var workers sync.WaitGroup
	tries := make(chan try)
	for range attackers {
		workers.Go(func() {
			for one := range tries {
				c, err := net.DialTimeout("tcp", address, patience)
				if err == nil {
					_ = c.SetDeadline(time.Now().Add(patience))
					err = one.send(c.(*net.TCPConn))
					c.Close()
				}
				mu.Lock()
				if sent++; err != nil {
					failed = append(failed, fmt.Sprintf("%s: %v", one.name, err))
				}
				mu.Unlock()
			}
		})
	}
	for _, one := range all {
		tries <- one
	}
	close(tries)
	workers.Wait()
	return sent, failed
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// last is a request that is permitted, by which a connection ends.
const last = "GET /public/end HTTP/1.1\r\nHost: cart\r\nConnection: close\r\n\r\n"

// send sends the way and a last request, and reads until the connection ends.
func (w *way) send(c stream1) (answer string, err error) {
	if _, err := io.WriteString(c, w.bytes+last); err != nil {
		return "", nil // it was closed before, which is an answer
	}
	if err := c.CloseWrite(); err != nil {
		return "", nil
	}
	all, err := io.ReadAll(c)
	if err != nil && !isTimeout(err) {
		err = nil
	}
	return string(all), err
}
