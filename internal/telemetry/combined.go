package telemetry

import (
	"strconv"
	"strings"
)

const combinedTime = "02/Jan/2006:15:04:05 -0700"

// appendText appends the record in the combined log format ("combined" of Apache httpd's mod_log_config and of nginx):
//
//	address ident user [time] "request" status bytes "referer" "user-agent"
//
// No identity was verified, so ident and user are "-". The requested header fields follow, and in the format Extended
// name=value pairs of everything that the combined format does not have.
func (l *AccessLog) appendText(b []byte, r *Record) []byte {
	most := l.most
	b = appendWord(b, address(r.Client), most)
	b = append(b, " - - ["...)
	b = r.Time.AppendFormat(b, combinedTime)
	b = append(b, `] "`...)
	b = appendRequest(b, r, most)
	b = append(b, `" `...)
	b = appendStatus(b, r)
	if b = append(b, ' '); r.BytesOut > 0 {
		b = strconv.AppendInt(b, r.BytesOut, 10)
	} else {
		b = append(b, '-')
	}
	b = appendQuotedOrDash(b, r.Referer, most)
	b = appendQuotedOrDash(b, r.UserAgent, most)
	if l.format == Extended {
		b = appendPairs(b, r, most)
	}
	b = appendQuotedFields(b, " request.", l.request, r.RequestFields, most)
	b = appendQuotedFields(b, " response.", l.response, r.ResponseFields, most)
	return append(b, '\n')
}

// address returns an address without its port, brackets and zone, as common tools expect a client.
func address(client string) string {
	if strings.HasPrefix(client, "[") {
		client, _, _ = strings.Cut(client[1:], "]")
	} else if host, _, ok := strings.Cut(client, ":"); ok && strings.Count(client, ":") == 1 {
		client = host
	}
	client, _, _ = strings.Cut(client, "%")
	return client
}

// appendRequest appends the request line, or "-" if there is none because the connection is not HTTP.
func appendRequest(b []byte, r *Record, most int) []byte {
	if r.Method == "" {
		return append(b, '-')
	}
	b = appendWord(b, r.Method, most)
	b = append(b, ' ')
	if r.Target != "" || r.Path == "" {
		b = appendWord(b, r.Target, most)
	} else if b = appendWord(b, r.Path, most); r.Query != "" {
		b = append(b, '?')
		b = appendWord(b, r.Query, most)
	}
	if r.Protocol == "" {
		return b
	}
	b = append(b, ' ')
	return appendWord(b, r.Protocol, most)
}

// noAnswer is written as the status of a request without an answer, as nginx does: tools do not know status 0.
const noAnswer = "499"

func appendStatus(b []byte, r *Record) []byte {
	switch {
	case r.Status >= 100:
		return strconv.AppendInt(b, int64(r.Status), 10)
	case r.Method == "":
		return append(b, "000"...) // there was no request
	}
	return append(b, noAnswer...)
}

// appendPairs appends everything that the combined format does not have.
func appendPairs(b []byte, r *Record, most int) []byte {
	b = append(b, " host="...)
	b = appendWord(b, r.Host, most)
	b = append(b, " duration_ms="...)
	b = appendMillis(b, r.Duration)
	b = appendPair(b, " client=", r.Client, most)
	b = appendPair(b, " peer=", r.Peer, most)
	b = appendPair(b, " listener=", r.Listener, most)
	b = appendPair(b, " route=", r.Route, most)
	b = appendPair(b, " rule=", r.Rule, most)
	b = appendPair(b, " backend=", r.Backend, most)
	b = appendPair(b, " endpoint=", r.Endpoint, most)
	if r.BackendConnect != 0 {
		b = append(b, " backend_connect_ms="...)
		b = appendMillis(b, r.BackendConnect)
	}
	if r.BackendFirstByte != 0 {
		b = append(b, " backend_first_byte_ms="...)
		b = appendMillis(b, r.BackendFirstByte)
	}
	if r.Attempts != 0 {
		b = append(b, " backend_duration_ms="...)
		b = appendMillis(b, r.BackendDuration)
		b = append(b, " attempts="...)
		b = strconv.AppendInt(b, int64(r.Attempts), 10)
	}
	b = append(b, " bytes_in="...)
	b = strconv.AppendInt(b, r.BytesIn, 10)
	b = appendPair(b, " reason=", string(r.Reason), most)
	b = appendPair(b, " path_reading=", r.PathReading, most)
	b = appendPair(b, " access=", r.Access, most)
	b = appendPair(b, " source=", r.Source, most)
	b = appendPair(b, " policy=", r.Policy, most)
	for i := range r.Mirrors {
		b = append(b, " mirror="...)
		b = appendWord(b, r.Mirrors[i].Mirror, most)
		b = append(b, ',')
		b = append(b, r.Mirrors[i].Outcome.String()...)
	}
	b = appendPair(b, " request_id=", r.RequestID, most)
	return appendPair(b, " traceparent=", r.TraceParent, most)
}

func appendPair(b []byte, name, value string, most int) []byte {
	if value == "" {
		return b
	}
	b = append(b, name...)
	return appendWord(b, value, most)
}

func appendQuotedOrDash(b []byte, s string, most int) []byte {
	b = append(b, ' ', '"')
	if s == "" {
		b = append(b, '-')
	}
	b = appendQuoted(b, s, most)
	return append(b, '"')
}

// appendWord appends s so that it stays one word: spaces are escaped too, and an empty one is "-".
func appendWord(b []byte, s string, most int) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendEscaped(b, s, ' ', most)
}

// appendQuoted appends s for between quotes.
func appendQuoted(b []byte, s string, most int) []byte { return appendEscaped(b, s, '"', most) }

// appendEscaped writes quotes, backslashes, control bytes, bytes above ASCII and the byte also as \xHH. So one line
// stays one line, and no text can control a terminal.
func appendEscaped(b []byte, s string, also byte, most int) []byte {
	size := quotedSize
	if also == ' ' {
		size = wordSize
	}
	kept := fit(s, most, size)
	left := len(s) - kept
	s = s[:kept]
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == also {
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			start = i + 1
		}
	}
	if b = append(b, s[start:]...); left > 0 {
		b = appendCut(b, left)
	}
	return b
}

func wordSize(s string) (n, encoded int) {
	if s[0] == ' ' {
		return 1, len(`\x20`)
	}
	return quotedSize(s)
}

func quotedSize(s string) (n, encoded int) {
	if c := s[0]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
		return 1, len(`\x00`)
	}
	return 1, 1
}
