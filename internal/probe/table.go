package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Kinds of checks.
const (
	Startup   = "startup"
	Liveness  = "liveness"
	Readiness = "readiness"
	PostStart = "postStart"
	PreStop   = "preStop"
)

// Kinds are all of them.
func Kinds() []string { return []string{Startup, Liveness, Readiness, PostStart, PreStop} }

// Bounds of a table.
const (
	MaxChecks = 256
	MaxTable  = 64 << 10 // bytes, as JSON
	maxFields = 64
)

// Table is a pod's checks by Key.
type Table map[string]Check

// Key names the check of a kind of a container: it is the path of the check, without its slash. With a secret only those who
// may read the pod know it, so that nobody else on the network has hooks run, or probes hindered. An empty one is left out.
func Key(container, kind, secret string) string {
	if secret == "" {
		return container + "/" + kind
	}
	return container + "/" + kind + "/" + secret
}

// Name is a key without its secret.
func Name(key string) string {
	name, _ := cut(key)
	return name
}

// cut takes a key apart.
func cut(key string) (name, secret string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 && strings.Contains(key[:i], "/") {
		return key[:i], key[i+1:]
	}
	return key, ""
}

// Secret is that of the table's keys; empty if there is none.
func (t Table) Secret() string {
	for key := range t {
		if _, secret := cut(key); secret != "" {
			return secret
		}
	}
	return ""
}

// Check is one probe or hook; exactly one of HTTP, TCP and GRPC is set. Ports are numbers, at the pod's own address.
type Check struct {
	HTTP *HTTP `json:"http,omitempty"`
	TCP  *TCP  `json:"tcp,omitempty"`
	GRPC *GRPC `json:"grpc,omitempty"`
	// Seconds bounds the check; 0 bounds it by the kubelet's patience alone.
	Seconds int32 `json:"seconds,omitempty"`
}

// HTTP is a GET, as HTTPGetAction has it.
type HTTP struct {
	Port   int32  `json:"port"`
	Path   string `json:"path,omitempty"` // with its query; empty is "/"
	Secure bool   `json:"secure,omitempty"`
	// Fields are those that the user set, in his order. Host among them replaces the address.
	Fields []Field `json:"fields,omitempty"`
}

// Field is a field of a request.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TCP is a connection that must come about, as TCPSocketAction has it.
type TCP struct {
	Port int32 `json:"port"`
}

// GRPC is a call of grpc.health.v1.Health/Check in cleartext, as GRPCAction has it.
type GRPC struct {
	Port    int32  `json:"port"`
	Service string `json:"service,omitempty"`
}

// Parse reads a table from JSON, strictly. Errors name the check and the field.
func Parse(text []byte) (Table, error) {
	if len(text) > MaxTable {
		return nil, fmt.Errorf("the table of probes has %d bytes, more than %d", len(text), MaxTable)
	}
	var t Table
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("the table of probes: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("the table of probes: more follows it")
	}
	if len(t) > MaxChecks {
		return nil, fmt.Errorf("the table of probes has %d entries, more than %d", len(t), MaxChecks)
	}
	for key, c := range t {
		if err := c.valid(key); err != nil {
			return nil, fmt.Errorf("probe %q: %w", Name(key), err)
		}
	}
	return t, nil
}

func (c *Check) valid(key string) error {
	name, secret := cut(key)
	container, kind, _ := strings.Cut(name, "/")
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	if container == "" || strings.Trim(container, letters) != "" || !slices.Contains(Kinds(), kind) || strings.Trim(secret, letters) != "" || strings.HasSuffix(key, "/") {
		return fmt.Errorf("its name is not CONTAINER/KIND or CONTAINER/KIND/SECRET, with a kind of %q", Kinds())
	}
	set, port := 0, int32(0)
	if c.HTTP != nil {
		set, port = set+1, c.HTTP.Port
	}
	if c.TCP != nil {
		set, port = set+1, c.TCP.Port
	}
	if c.GRPC != nil {
		set, port = set+1, c.GRPC.Port
	}
	switch {
	case set != 1:
		return fmt.Errorf("%d of http, tcp and grpc are set, want one", set)
	case port < 1 || port > 65535:
		return fmt.Errorf("port: %d is not a port", port)
	case c.Seconds < 0:
		return fmt.Errorf("seconds: %d is negative", c.Seconds)
	case c.HTTP == nil:
		return nil
	case len(c.HTTP.Fields) > maxFields:
		return fmt.Errorf("http.fields: %d fields, more than %d", len(c.HTTP.Fields), maxFields)
	}
	// The request is made once here, as each check makes it, so that no check fails by what was written.
	_, err := c.HTTP.request("127.0.0.1", "kube-probe")
	return err
}

// limit is the longest that the check may take.
func (c *Check) limit() time.Duration {
	if c.Seconds == 0 {
		return longest
	}
	return min(time.Duration(c.Seconds)*time.Second, longest)
}

// longest bounds hooks, which have no time of their own: a pod's grace period, as long as anybody sets one.
const longest = 24 * time.Hour
