package feed

import (
	"github.com/weirmesh/weir/internal/model"
)

// Common is a part of the configurations of many owners, encoded once for all of them (Server.Set). It is immutable.
type Common struct {
	// Partial says that it lacks what Direct answers: proxies that do not ask keep what they have.
	Partial bool

	parts *snapshot
}

// NewCommon encodes it. It takes what did not change from an earlier one, if there is one, of which nothing more may be made
// then.
func NewCommon(c *model.Config, earlier *Common) (*Common, error) {
	var before *snapshot
	if earlier != nil {
		before = earlier.parts
	}
	parts, err := newSnapshot(c, before)
	if err != nil {
		return nil, err
	}
	return &Common{parts: parts}, nil
}

// Set makes a configuration that of one owner while a proxy of the owner is connected, and forgets it when the last one has
// gone for as long as Linger: for many owners of which each has few proxies, such as workloads. The configuration is own
// and, unless that is nil, common; of parts of one name that of own counts. Set does nothing, and returns false, if no proxy
// is connected. Errors are as those of Publish, which it does not delay.
func (s *Server) Set(owner model.Owner, own *model.Config, common *Common) (connected bool, err error) {
	s.init()
	s.setting.Lock()
	defer s.setting.Unlock()
	s.mu.Lock()
	f := s.feeds[owner]
	if f == nil || len(f.sessions)+len(f.proxies) == 0 {
		s.mu.Unlock()
		return false, nil
	}
	f.alone = true
	s.mu.Unlock()
	mine, err := newSnapshot(own, f.own)
	s.mu.Lock()
	f.unsent = err
	s.mu.Unlock()
	if err != nil {
		return true, err
	}
	f.own = mine
	next := mine
	if common != nil {
		next = mine.with(common.parts)
		next.partial = common.Partial
	}
	if before := f.current.Load(); before == nil || before.partial != next.partial || before.version != next.version {
		s.install(f, next)
	}
	return true, nil
}

// with is a snapshot with the parts of both, which they share with it.
func (s *snapshot) with(o *snapshot) *snapshot {
	all := make([]*part, 0, len(s.parts)+len(o.parts))
	i := 0
	for _, p := range o.parts {
		for i < len(s.parts) && s.parts[i].name < p.name {
			all = append(all, s.parts[i])
			i++
		}
		if i == len(s.parts) || s.parts[i].name != p.name {
			all = append(all, p)
		}
	}
	all = append(all, s.parts[i:]...)
	return &snapshot{version: versionOf(all, func(p *part) (string, string) { return p.name, p.version }), parts: all}
}
