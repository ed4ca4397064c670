package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// seed is a request that somebody might misread, with the section that says how it is to be read.
type seed struct {
	section string // of RFC 9112, or of RFC 9110 where it begins with "9110"
	name    string
	want    int // the status of the refusal; 0: it is forwarded; -1: it is cut off
	bytes   string
}

const (
	hostLine = "Host: a.example\r\n"
	postHead = "POST /p HTTP/1.1\r\n" + hostLine
)

// get is a GET with the target; with adds field lines to one; post frames a body.
func get(target string) string { return "GET " + target + " HTTP/1.1\r\n" + hostLine + "\r\n" }
func with(lines string) string { return "GET /f HTTP/1.1\r\n" + hostLine + lines + "\r\n" }
func post(lines, body string) string {
	return postHead + lines + "\r\n" + body
}
func line(l string) string      { return l + "\r\n" + hostLine + "\r\n" }
func host(lines string) string  { return "GET /h HTTP/1.1\r\n" + lines + "\r\n" }
func chunks(body string) string { return post("Transfer-Encoding: chunked\r\n", body) }

const hello = "5\r\nhello\r\n0\r\n\r\n"

// seeds are written from the two documents.
func seeds() []seed {
	return slices.Concat(lineSeeds(), targetSeeds(), hostSeeds(), fieldSeeds(), lengthSeeds(), codingSeeds(), chunkSeeds(), pipelineSeeds())
}

// kase is a request to be sent.
type kase struct {
	name  string
	want  int // -1: what the grammar says
	bytes []byte
}

// corpus is the seeds and count mutations of them that differ from each other and from the seeds. The same count gives the same corpus.
func corpus(count int) []kase {
	var all []kase
	seen := map[string]bool{}
	add := func(c kase) bool {
		if seen[string(c.bytes)] {
			return false
		}
		seen[string(c.bytes)] = true
		all = append(all, c)
		return true
	}
	base := seeds()
	for i := range base {
		add(kase{"RFC 9112 §" + base[i].section + ": " + base[i].name, base[i].want, []byte(base[i].bytes)})
		if s := base[i].section; strings.HasPrefix(s, "9110 ") {
			all[len(all)-1].name = "RFC 9110 §" + s[5:] + ": " + base[i].name
		}
	}
	for _, p := range products() {
		add(kase{p.name, -1, []byte(p.bytes)})
	}
	r := rand.New(rand.NewPCG(9110, 9112))
	for n := 0; n < count; {
		s := &base[r.IntN(len(base))]
		b := []byte(s.bytes)
		if len(b) > 3000 {
			continue
		}
		for range 1 + r.IntN(2) {
			b = mutate(r, b, base, n%3 == 0)
		}
		if len(b) > 0 && add(kase{fmt.Sprintf("mutation %d of %q", n, s.name), -1, b}) {
			n++
		}
	}
	return all
}

// products are all pairs of ways to frame a body, in either order, each with content that reads as one or the other: what smuggling is made
// of (RFC 9112 §11.2).
func products() (all []seed) {
	lengths := []string{"Content-Length: 5", "Content-Length: 0", "Content-Length: 15", "Content-Length: 05", "Content-Length: +5", "Content-Length:5 ", "Content-Length : 5", "Content-Length: 5,5", "Content-Length: 0x5",
		"Content-Length\t: 5", " Content-Length: 5", "Content-Length:\r\n 5", "content_length: 5", "X: y\nContent-Length: 5", "X: y\rContent-Length: 5", "Content-Length:\v5", "Content-Length: 5\x00"}
	codings := []string{"Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding:chunked ", "Transfer-Encoding : chunked", "Transfer-Encoding: x", "Transfer-Encoding: x, chunked", "Transfer-Encoding: chunked, x",
		"Transfer-Encoding: \"chunked\"", "Transfer-Encoding:\vchunked", "Transfer-Encoding: xchunked", "Transfer-Encoding:", "\tTransfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "transfer_encoding: chunked",
		"X: y\nTransfer-Encoding: chunked", "X: y\rTransfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding: chunked;q=1"}
	lines := append(slices.Clone(lengths), codings...)
	for _, first := range lines {
		for _, second := range lines {
			all = append(all, seed{name: fmt.Sprintf("RFC 9112 §11.2: %q and %q", first, second), bytes: post(first+"\r\n"+second+"\r\n", hello)})
		}
	}
	return all
}
