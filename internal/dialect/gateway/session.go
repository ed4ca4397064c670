package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// session translates the session persistence of the route's rule i.
func (p *ruleParts) session(r *route, i int) *model.Session {
	written := p.sticky
	if written == nil {
		return nil
	}
	out := &model.Session{Type: model.Cookie, AbsoluteTimeout: p.duration(".sessionPersistence.absoluteTimeout", written.AbsoluteTimeout)}
	if uid := r.meta.UID; uid != "" {
		// It is random and unknown to everyone who may not read the route; all proxies get the same.
		sum := sha256.Sum256([]byte("weir session salt " + string(uid)))
		out.Salt = hex.EncodeToString(sum[:])
	}
	fail := func(field, message, fix string) {
		p.problems = append(p.problems, resource.Problem(codeValue, "UnsupportedValue", p.field+".sessionPersistence"+field, message, fix))
	}
	switch kind := value(written.Type, gatewayv1.CookieBasedSessionPersistence); kind {
	case gatewayv1.CookieBasedSessionPersistence:
	case gatewayv1.HeaderBasedSessionPersistence:
		out.Type = model.Header
	default:
		fail(".type", fmt.Sprintf("type %q is not known", kind), "use Cookie or Header")
	}
	if out.Name = value(written.SessionName, ""); out.Name == "" {
		out.Name = sessionName(r, string(value(p.name, "")), i)
	} else if fault := model.SessionNameFault(out.Type, out.Name); fault != "" {
		fail(".sessionName", fmt.Sprintf("%q %s", out.Name, fault), "use letters, digits, hyphens and underscores, and no header that has another use")
	}
	if c := written.CookieConfig; c != nil {
		if out.Type != model.Cookie {
			fail(".cookieConfig", "there is no cookie to configure", "remove it, or use type Cookie")
		}
		switch kind := value(c.LifetimeType, gatewayv1.SessionCookieLifetimeType); kind {
		case gatewayv1.SessionCookieLifetimeType:
		case gatewayv1.PermanentCookieLifetimeType:
			if out.Permanent = true; out.AbsoluteTimeout == 0 {
				fail(".absoluteTimeout", "a permanent cookie has no lifetime without it", "set it to more than 0s, or use lifetimeType Session")
			}
		default:
			fail(".cookieConfig.lifetimeType", fmt.Sprintf("type %q is not known", kind), "use Session or Permanent")
		}
	}
	return out
}

// sessionName is the name of sessions without a configured name. Each rule has its own, which stays the same as long as
// the rule keeps its name or, if it has none, its index.
func sessionName(r *route, rule string, i int) string {
	if rule == "" {
		rule = "#" + strconv.Itoa(i)
	}
	sum := sha256.Sum256([]byte(r.ref.Kind + "/" + r.ref.Namespace + "/" + r.ref.Name + "/" + rule))
	return "weir-" + hex.EncodeToString(sum[:6])
}

// joinSessions gives copies of rules, which steps of a release add, the default session name of the rule that they are
// copies of: a client has one token for both.
func (r *route) joinSessions() {
	for i := range r.rules {
		k := model.SessionRule(r.rules, i)
		copied, own := &r.rules[i], &r.rules[k]
		if k != i && copied.Session.Name == sessionName(r, copied.Name, i) && own.Session.Name == sessionName(r, own.Name, k) {
			copied.Session.Name = own.Session.Name
		}
	}
}

// lintSession reports a rule whose sessions an earlier rule of the route overwrites: a client has one value for a
// header, and one for cookies of one name and path.
func (t *translator) lintSession(r *route, i int) {
	rule := &r.rules[i]
	if rule.Session == nil {
		return
	}
	same := func(a, b *model.Session) bool {
		return a.Name == b.Name || a.Type == model.Header && strings.EqualFold(a.Name, b.Name)
	}
	samePath := func(other *model.Rule) bool {
		return slices.ContainsFunc(rule.Matches, func(a model.Match) bool {
			return slices.ContainsFunc(other.Matches, func(b model.Match) bool { return a.Path == b.Path })
		})
	}
	for j := range i {
		if model.SessionRule(r.rules, i) == model.SessionRule(r.rules, j) {
			continue
		}
		other := &r.rules[j]
		s := other.Session
		if s == nil || s.Type != rule.Session.Type || !same(s, rule.Session) || s.Type == model.Cookie && !samePath(other) {
			continue
		}
		t.report(r.ref, resource.Problem(codeSessionShared, "", rule.Ref.Field+".sessionPersistence.sessionName",
			fmt.Sprintf("%s has sessions named %q too, and each rule ignores the other's", other.Ref.Field, s.Name), "name them differently"))
		return
	}
}
