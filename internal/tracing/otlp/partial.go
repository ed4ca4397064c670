package otlp

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirmesh/weir/internal/visible"
)

// maxMessage is how much of a collector's message is kept, in bytes.
const maxMessage = 512

// partial is what a collector says about spans of a message that it accepted: that it rejected some, or a warning with
// none rejected. It is an error so that it passes the SDK's exporter.
type partial struct {
	rejected int64
	message  string
}

func (p *partial) Error() string {
	return fmt.Sprintf("the collector rejected %d spans: %s", p.rejected, p.message)
}

// readPartial reads partial_success of an ExportTraceServiceResponse (opentelemetry-proto 1.9, trace_service.proto), whose
// package needs gRPC. It returns nil if the collector accepted everything without a word, and for what is no such answer.
func readPartial(answer []byte) *partial {
	var p partial
	ok := fields(answer, func(n protowire.Number, of protowire.Type, value []byte) bool {
		if n != 1 || of != protowire.BytesType {
			return true
		}
		inner, size := protowire.ConsumeBytes(value)
		return size >= 0 && fields(inner, p.field)
	})
	if !ok || p == (partial{}) {
		return nil
	}
	return &p
}

// field reads a field of ExportTracePartialSuccess.
func (p *partial) field(n protowire.Number, of protowire.Type, value []byte) bool {
	switch {
	case n == 1 && of == protowire.VarintType: // rejected_spans
		v, _ := protowire.ConsumeVarint(value)
		p.rejected = max(int64(v), 0)
	case n == 2 && of == protowire.BytesType: // error_message
		v, _ := protowire.ConsumeBytes(value)
		p.message = visible.Text(string(v[:min(len(v), maxMessage)]))
	}
	return true
}

// fields calls each with the fields of a message until it returns false. It reports whether the message is whole and each
// returned true.
func fields(message []byte, each func(protowire.Number, protowire.Type, []byte) bool) bool {
	for len(message) > 0 {
		n, of, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return false
		}
		message = message[tag:]
		size := protowire.ConsumeFieldValue(n, of, message)
		if size < 0 || !each(n, of, message[:size]) {
			return false
		}
		message = message[size:]
	}
	return true
}
