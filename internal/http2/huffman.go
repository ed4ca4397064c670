package http2

import (
	"strings"

	"golang.org/x/net/http2/hpack"
)

// The Huffman code of RFC 7541 Appendix B is canonical: codes of one length follow each other in the order of their
// symbols, and the codes of the next length continue from there. So the lengths, which the library's encoder returns,
// define it. Codes of up to huffmanFast bits, which all common symbols have, are looked up at once; the library's
// decoder follows a tree and writes byte by byte.
const (
	huffmanFast = 10
	huffmanMost = 30 // bits of the longest code
)

// huffmanCode is the entry for a code's first bits: the symbol and the length of its code in bits, 0 if that is longer.
type huffmanCode struct {
	symbol byte
	bits   uint8
}

var (
	huffmanCodes   [1 << huffmanFast]huffmanCode
	huffmanSymbols []byte // in the order of their codes
	// huffmanFirst is the first code of a length, huffmanCount how many it has, and huffmanPlace where the first's symbol is.
	huffmanFirst, huffmanCount, huffmanPlace [huffmanMost + 1]uint32
)

func init() {
	var symbols [huffmanMost + 1][]byte
	for c := range 256 {
		// Eight of it take as many bytes as one takes bits.
		n := hpack.HuffmanEncodeLength(strings.Repeat(string([]byte{byte(c)}), 8))
		symbols[n] = append(symbols[n], byte(c))
	}
	code := uint32(0)
	for n := 1; n <= huffmanMost; n++ {
		code <<= 1
		huffmanFirst[n], huffmanCount[n], huffmanPlace[n] = code, uint32(len(symbols[n])), uint32(len(huffmanSymbols))
		for _, c := range symbols[n] {
			huffmanSymbols = append(huffmanSymbols, c)
			if n <= huffmanFast {
				from := code << (huffmanFast - n)
				for i := range uint32(1) << (huffmanFast - n) {
					huffmanCodes[from+i] = huffmanCode{c, uint8(n)}
				}
			}
			code++
		}
	}
}

// appendHuffmanDecoded appends the decoded string; false if coded is not a Huffman-coded string (RFC 7541 §5.2).
func appendHuffmanDecoded(dst, coded []byte) ([]byte, bool) {
	var acc uint64 // the next bits, from the top
	have := uint(0)
	for {
		for have <= 56 && len(coded) > 0 {
			acc |= uint64(coded[0]) << (56 - have)
			coded = coded[1:]
			have += 8
		}
		if c := huffmanCodes[acc>>(64-huffmanFast)]; c.bits != 0 && uint(c.bits) <= have {
			dst = append(dst, c.symbol)
			acc <<= c.bits
			have -= uint(c.bits)
			continue
		}
		n := longHuffman(acc, have)
		if n == 0 {
			// The padding is the beginning of the longest code, all ones, and shorter than a byte.
			return dst, have < 8 && acc == ^uint64(0)<<(64-have)
		}
		code := uint32(acc >> (64 - n))
		dst = append(dst, huffmanSymbols[huffmanPlace[n]+code-huffmanFirst[n]])
		acc <<= n
		have -= n
	}
}

// longHuffman returns the length in bits of the code at the beginning of the bits, 0 if it is not complete.
func longHuffman(acc uint64, have uint) uint {
	for n := uint(huffmanFast + 1); n <= min(have, huffmanMost); n++ {
		if code := uint32(acc >> (64 - n)); code-huffmanFirst[n] < huffmanCount[n] {
			return n
		}
	}
	return 0
}
