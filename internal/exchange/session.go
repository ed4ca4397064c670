package exchange

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

// session is a rule's session persistence. The proxy remembers nothing about clients. A token names its target with a
// digest, which every proxy with the same rule and endpoints computes alike. So a session outlives reloads, restarts
// and the proxy that issued the token.
//
// Anyone who knows the digest's input can compute it, so a token also has a proof that a proxy issued it. Proxies that
// share a key always require the proof. A proxy with a key of its own cannot verify the tokens of others. It requires
// the proof only where a client without a session could not have been sent, at weight 0.
type session struct {
	name      string
	header    bool // else a cookie
	permanent bool
	absolute  time.Duration
	shared    bool // all proxies that serve the rule have the key

	// byID has all targets of an ID: several if a service is a leaf of several splits of a root.
	byID   map[targetID][]*sessionTarget
	bySpot map[sessionSpot]*sessionTarget
	// attributes are the attributes of the cookie, parallel to the rule's matches.
	attributes []string
}

// sessionSpot is where a request went.
type sessionSpot struct {
	backend  *Backend
	endpoint *upstream.Endpoint
}

// sessionTarget is an endpoint of a backend, or of a leaf.
type sessionTarget struct {
	key      [sha256.Size]byte
	secret   [sha256.Size]byte // of key and what only proxies know
	idle     bool              // of weight 0: no session begins there
	backend  *routing.Backend
	leaf     *routing.Leaf // nil for the backend's service itself
	state    *Backend
	endpoint *upstream.Endpoint
}

// These constants define a token. It has an ID, which is the beginning of the target's key, and the time of issue in
// milliseconds. Then follow a tag over key and time, and a proof over the same and a secret.
const (
	idSize    = 10
	timeSize  = 6
	tagSize   = 8
	proofSize = 9
	proofAt   = idSize + timeSize + tagSize
	tokenSize = proofAt + proofSize
	tokenText = tokenSize / 3 * 4
)

type targetID [idSize]byte

// maxSkew is how far another proxy's clock may be ahead.
const maxSkew = 5 * time.Minute

// sessionKeys are the keys of proofs.
type sessionKeys struct {
	shared []byte // by all proxies that serve the same rules; nil if there is no such key
	own    [32]byte
}

func newSessionKeys(shared []byte) *sessionKeys {
	k := &sessionKeys{shared: shared}
	_, _ = rand.Read(k.own[:]) // never fails
	return k
}

// of returns the key of a rule's sessions, and whether other proxies have it, too.
func (k *sessionKeys) of(m *model.Session) (key [sha256.Size]byte, shared bool) {
	if len(k.shared) == 0 && m.Salt == "" {
		return k.own, false
	}
	return digest("weir session key", string(k.shared), m.Salt), true
}

// compileSession prepares a rule's session persistence. The rule's backends and leaves must have their services.
func compileSession(m *model.Session, r *routing.Rule, snap *Snapshot, keys *sessionKeys) *session {
	if m == nil {
		return nil
	}
	key, shared := keys.of(m)
	s := &session{
		name: m.Name, header: m.Type == model.Header, permanent: m.Permanent, shared: shared,
		absolute: time.Duration(m.AbsoluteTimeout),
		byID:     map[targetID][]*sessionTarget{}, bySpot: map[sessionSpot]*sessionTarget{},
	}
	for i := range r.Rule.Matches {
		s.attributes = append(s.attributes, "; Path="+cookiePath(r.Rule.Matches[i].Path)+"; HttpOnly; SameSite=Lax")
	}
	rule := sessionRule(r)
	same := map[string]int{}
	for _, b := range r.Backends {
		nth := strconv.Itoa(same[b.Backend.Service])
		same[b.Backend.Service]++
		add := func(state *Backend, leaf *routing.Leaf, service string) {
			if state.Service == nil {
				return
			}
			for _, e := range state.Service.Endpoints() {
				t := &sessionTarget{backend: b, leaf: leaf, state: state, endpoint: e}
				t.idle = idleTarget(b, leaf)
				t.key = digest("weir session 1", rule, b.Backend.Service, nth, service, e.Address)
				t.secret = digest("weir session secret", string(key[:]), string(t.key[:]))
				s.byID[targetID(t.key[:idSize])] = append(s.byID[targetID(t.key[:idSize])], t)
				s.bySpot[sessionSpot{state, e}] = t
			}
		}
		add(&snap.Backends[b.ID], nil, b.Backend.Service)
		for _, leaf := range b.Leaves() {
			add(&snap.Leaves[leaf.ID], leaf, leaf.Service)
		}
	}
	return s
}

// idleTarget reports whether no session begins at a backend, or at its leaf if it has one.
func idleTarget(b *routing.Backend, leaf *routing.Leaf) bool {
	return b.Backend.Weight == 0 || leaf != nil && (leaf.Leaf == nil || leaf.Leaf.Weight == 0)
}

// sessionRule identifies the rule that owns a rule's sessions, across configurations and whatever it matches: by its
// name, else by its place.
func sessionRule(r *routing.Rule) string {
	ref := &r.Route.Ref
	rule := "index " + strconv.Itoa(r.Index)
	if r.Rule.Name != "" {
		rule = "name " + r.Route.Rules[model.SessionRule(r.Route.Rules, r.Index)].Name
	}
	return ref.Kind + " " + ref.Namespace + "/" + ref.Name + " " + rule
}

func digest(parts ...string) [sha256.Size]byte {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}

// cookiePath returns the path attribute that makes a match's requests bring the cookie back. It is the path matched. Of
// an expression, it is the longest prefix in whole segments that is not an expression (GEP-1619, "Path").
func cookiePath(m model.PathMatch) string {
	path, whole := m.Value, true
	if m.Type == model.Regex {
		path, whole = "", false
		if e, err := model.CompilePattern(m.Value); err == nil {
			path, whole = e.Prefix, e.Complete
		}
	}
	// A character that the attribute does not allow (RFC 6265 §4.1.1) ends it too.
	if i := strings.IndexFunc(path, func(c rune) bool { return c < ' ' || c >= 0x7f || c == ';' }); i >= 0 {
		path, whole = path[:i], false
	}
	if !whole {
		path = path[:strings.LastIndexByte(path, '/')+1]
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	if !strings.HasPrefix(path, "/") {
		return "/"
	}
	return path
}

// resume finds the session that the request belongs to, nil if it has no valid one. A malformed token, or one of
// another rule, counts as no token.
func (ex *Exchange) resume(s *session) *routing.Backend {
	for i := range ex.req.Fields {
		f := &ex.req.Fields[i]
		switch {
		case s.header:
			if len(f.Name) == len(s.name) && http1.EqualFold(f.Name, s.name) && ex.accept(s, f.Value) {
				return ex.resumed.backend
			}
		case len(f.Name) == len("cookie") && http1.EqualFold(f.Name, "cookie"):
			if ex.acceptCookie(s, f.Value) {
				return ex.resumed.backend
			}
		}
	}
	return nil
}

// acceptCookie checks all cookies with the session's name: a client has one for each path.
func (ex *Exchange) acceptCookie(s *session, cookies string) bool {
	for more := true; more; {
		var pair string
		pair, cookies, more = strings.Cut(cookies, ";")
		name, value, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
		if name == s.name && ex.accept(s, strings.Trim(value, `"`)) {
			return true
		}
	}
	return false
}

// accept takes up the session of a token.
func (ex *Exchange) accept(s *session, text string) bool {
	if len(text) != tokenText {
		return false
	}
	var src [tokenText]byte
	var token [tokenSize]byte
	copy(src[:], text)
	if n, err := base64.RawURLEncoding.Decode(token[:], src[:]); err != nil || n != tokenSize {
		return false
	}
	for _, t := range s.byID[targetID(token[:idSize])] {
		issuedAt := token[idSize : idSize+timeSize]
		if t.tag(issuedAt) != [tagSize]byte(token[idSize+timeSize:proofAt]) {
			continue
		}
		if proof := t.proof(issuedAt); (s.shared || t.idle) && subtle.ConstantTimeCompare(proof[:], token[proofAt:]) == 0 {
			continue
		}
		issued := tokenTime(token[idSize:])
		now := ex.sessionTime()
		if issued > now+maxSkew.Milliseconds() || s.absolute > 0 && now-issued >= s.absolute.Milliseconds() {
			return false
		}
		if split := t.backend.Split(&ex.match); split == nil && t.leaf != nil || split != nil && (t.leaf == nil || t.leaf.Split != split) {
			continue
		}
		if !t.endpoint.Healthy() || !t.endpoint.Room() || t.state.Fault != nil {
			return false
		}
		ex.resumed = t
		return true
	}
	return false
}

// tag binds a time to the target.
func (t *sessionTarget) tag(time []byte) [tagSize]byte {
	var b [sha256.Size + timeSize]byte
	copy(b[:], t.key[:])
	copy(b[sha256.Size:], time)
	sum := sha256.Sum256(b[:])
	return [tagSize]byte(sum[:tagSize])
}

// proof shows that a proxy issued a token at that time. The hashed input has a fixed length, so nothing can be appended
// to it.
func (t *sessionTarget) proof(time []byte) [proofSize]byte {
	var b [sha256.Size + timeSize]byte
	copy(b[:], t.secret[:])
	copy(b[sha256.Size:], time)
	sum := sha256.Sum256(b[:])
	return [proofSize]byte(sum[:proofSize])
}

func tokenTime(b []byte) int64 {
	return int64(binary.BigEndian.Uint16(b))<<32 | int64(binary.BigEndian.Uint32(b[2:]))
}

func putTokenTime(b []byte, t int64) {
	binary.BigEndian.PutUint16(b, uint16(t>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(t))
}

func (ex *Exchange) sessionTime() int64 {
	if now := ex.pipe.Now; now != nil {
		return now().UnixMilli()
	}
	return ex.from.Start.UnixMilli()
}

// is reports whether only the proxy may send a field of that name to clients, because it holds the session's token.
func (s *session) is(name string) bool {
	return s.header && len(name) == len(s.name) && http1.EqualFold(name, s.name)
}

// markSession adds the token to the answer's fields, unless the client has it. The client lacks it if the session is
// new, or if the session's endpoint could not be kept.
func (ex *Exchange) markSession(s *session, fields []http1.Field) []http1.Field {
	if s.header { // a backend's value in this field is not a token
		fields = slices.DeleteFunc(fields, func(f http1.Field) bool { return s.is(f.Name) })
	}
	t := s.bySpot[sessionSpot{ex.backend, ex.endpoint}]
	if t == nil || t == ex.resumed {
		return fields
	}
	var token [tokenSize]byte
	copy(token[:], t.key[:idSize])
	putTokenTime(token[idSize:], ex.sessionTime())
	tag := t.tag(token[idSize : idSize+timeSize])
	copy(token[idSize+timeSize:], tag[:])
	proof := t.proof(token[idSize : idSize+timeSize])
	copy(token[proofAt:], proof[:])

	mark := len(ex.scratch)
	if s.header {
		ex.scratch = base64.RawURLEncoding.AppendEncode(ex.scratch, token[:])
		return append(fields, http1.Field{Name: s.name, Value: ex.text(mark)})
	}
	ex.scratch = append(ex.scratch, s.name...)
	ex.scratch = append(ex.scratch, '=')
	ex.scratch = base64.RawURLEncoding.AppendEncode(ex.scratch, token[:])
	matches := ex.decision.Rule.Rule.Matches
	for i := range matches {
		if &matches[i] == ex.decision.Match {
			ex.scratch = append(ex.scratch, s.attributes[i]...)
		}
	}
	if ex.scheme() == "https" {
		ex.scratch = append(ex.scratch, "; Secure"...)
	}
	if s.permanent {
		ex.scratch = append(ex.scratch, "; Max-Age="...)
		ex.scratch = strconv.AppendInt(ex.scratch, (s.absolute.Milliseconds()+999)/1000, 10)
	}
	return append(fields, http1.Field{Name: "Set-Cookie", Value: ex.text(mark)})
}
