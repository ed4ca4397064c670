package access

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serve2 notes what comes over a connection of HTTP/2. It takes any fields, and notes as faults those that a request may not
// have.
func (r *Recorder) serve2(c net.Conn, in io.Reader) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(in, preface); err != nil {
		return
	}
	f := http2.NewFramer(c, in)
	if f.WriteSettings() != nil {
		return
	}
	var (
		fields  []hpack.HeaderField
		decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) { fields = append(fields, f) })
		open    = map[uint32]*received{} // by stream
		partial []byte                   // of the fields of a stream
		last    bool                     // whether these are the end of the stream
	)
	defer func() {
		for _, got := range open { // did not end
			r.note(func() { r.requests = append(r.requests, *got) })
		}
	}()
	end := func(id uint32) error {
		if got := open[id]; got != nil {
			r.note(func() { r.requests = append(r.requests, *got) })
			delete(open, id)
		}
		var block bytes.Buffer
		if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}); err != nil {
			return err
		}
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	}
	head := func(id uint32) error {
		fields = nil
		if _, err := decoder.Write(partial); err != nil {
			return err
		}
		if err := decoder.Close(); err != nil {
			return err
		}
		partial = nil
		if got := open[id]; got != nil {
			for _, f := range fields {
				if strings.HasPrefix(f.Name, ":") {
					r.note(func() { r.faults = append(r.faults, "a trailer "+f.Name) })
				}
				got.trailers = append(got.trailers, [2]string{f.Name, f.Value})
			}
		} else {
			got, faults := received2(fields)
			open[id] = &got
			r.note(func() { r.faults = append(r.faults, faults...) })
		}
		if last {
			return end(id)
		}
		return nil
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch x := frame.(type) {
		case *http2.SettingsFrame:
			if !x.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !x.IsAck() {
				err = f.WritePing(true, x.Data)
			}
		case *http2.HeadersFrame:
			partial, last = append(partial, x.HeaderBlockFragment()...), x.StreamEnded()
			if x.HeadersEnded() {
				err = head(x.StreamID)
			}
		case *http2.ContinuationFrame:
			partial = append(partial, x.HeaderBlockFragment()...)
			if x.HeadersEnded() {
				err = head(x.StreamID)
			}
		case *http2.DataFrame:
			if n := uint32(x.Length); n > 0 {
				err = f.WriteWindowUpdate(0, n)
			}
			if err == nil && x.StreamEnded() {
				err = end(x.StreamID)
			}
		}
		if err != nil {
			return
		}
	}
}

// received2 is a request of HTTP/2 as the recorder judges it, and what none may have.
func received2(fields []hpack.HeaderField) (got received, faults []string) {
	pseudo := map[string]string{}
	var rest strings.Builder
	for i, f := range fields {
		name := f.Name
		_, twice := pseudo[name]
		switch {
		case strings.HasPrefix(name, ":") && (twice || i > len(pseudo) || !strings.Contains(" :method :scheme :authority :path ", " "+name+" ")):
			faults = append(faults, fmt.Sprintf("the pseudo-field %q is unknown, there twice or behind other fields: %q", name, fields))
			fallthrough
		case strings.HasPrefix(name, ":"):
			pseudo[name] = f.Value
			continue
		case name != strings.ToLower(name), name == "connection", name == "transfer-encoding", name == "upgrade", name == "keep-alive", name == "proxy-connection":
			faults = append(faults, fmt.Sprintf("HTTP/2 has no field %q: %q", name, f.Value))
		}
		got.fields = append(got.fields, [2]string{name, f.Value})
		fmt.Fprintf(&rest, "%s: %s\r\n", name, f.Value)
	}
	got.line = pseudo[":method"] + " " + pseudo[":path"] + " HTTP/1.1"
	if authority, ok := pseudo[":authority"]; ok {
		got.fields = append(got.fields, [2]string{"host", authority})
	}
	got.raw = fmt.Sprintf("%s\r\nhost: %s\r\n%s", got.line, pseudo[":authority"], rest.String())
	return got, faults
}
