package proxy

import (
	"bytes"

	"golang.org/x/net/http2/hpack"
)

// encode makes a header block of any fields, valid or not.
func encode(fields [][2]string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return b.Bytes()
}

func decoder() *hpack.Decoder { return hpack.NewDecoder(4096, nil) }

// encodeTwice returns the blocks of a head that is sent twice. In the second block, the fields come from the table.
func encodeTwice(fields [][2]string) (blocks [2][]byte) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := range blocks {
		b.Reset()
		for _, f := range fields {
			e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		blocks[i] = bytes.Clone(b.Bytes())
	}
	return blocks
}
