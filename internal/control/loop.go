package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/spare"
)

// Report is where the loop stands after a set, or after another attempt to publish one.
type Report struct {
	// Generation counts the times that something was published; 0 is none yet.
	Generation uint64
	// Config is the one being served: the last that was published, nil when Generation is 0. Unpublished says what of it is not.
	Config *model.Config
	// Set is the newest set. Gateways, Statuses, Events and Findings are its own, whether or not it could be published; Statuses and Findings also say
	// what Unpublished does.
	Set      *resource.Set
	Gateways []*gatewayv1.Gateway
	Statuses []resource.Status
	Events   []resource.Event
	Findings []resource.Finding
	// Invalid is Result.Invalid of the newest set.
	Invalid map[model.Owner]error
	// Unpublished says of which owners not all is served, and why, as Publish did.
	Unpublished map[model.Owner]error
	// Sidecars is Result.Sidecars of the newest set.
	Sidecars *Sidecars
	// Err says why the newest set is not being served; nil when it is, be it without some Gateways.
	Err error
	// Changed says that something was published just now.
	Changed bool
	// TranslateTime is how long the newest set took to translate, PublishTime how long the last attempt to publish took.
	TranslateTime, PublishTime time.Duration

	translated translated
}

// Loop translates and publishes the sets of a source, in plain calls one after the other. The zero values of its times
// are usable; Source and Publish are required.
type Loop struct {
	Source resource.Source
	// Options of the translation.
	Options Options
	// Publish makes configurations those being served, each by the proxies of its owner; the one of the owner "" is what this process serves for
	// all, and there is no other then. An owner that is not among them any more is served no more. It returns why configurations are not served: each of
	// these keeps the one before, and keeps no other from its own. An error that is a finding.UnservedError is about single listeners, and the rest
	// is served; it may be of a Gateway that "" holds.
	//
	// It is called from one goroutine, and only if something differs from what is served. A configuration that did not change since it was published
	// is the same, by its address. All of them are called for again after Retry, as long as an error is neither of single listeners nor Final.
	Publish func(map[model.Owner]*model.Config) map[model.Owner]error
	// LeftOut, if set, returns what could not be served of the configuration that was published last. It is among the findings.
	LeftOut func() []model.Omission
	// Report, if set, is called after each set, from the same goroutine as Publish.
	Report func(Report)
	// Settle is how long the loop waits for another set before it translates the newest; zero is not at all. A stream
	// of sets is cut after MaxSettle (default: ten times Settle).
	Settle, MaxSettle time.Duration
	// Retry is the pause before the loop publishes again after a failure, for example because a port was in use.
	// Default 1 s.
	Retry  time.Duration
	Logger *slog.Logger
}

// Run blocks until ctx ends, which is no error, or until the source cannot go on. It fails when the first
// configuration of this process cannot be published: then nothing is being served.
func (l *Loop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	sets := make(chan *resource.Set, 1) // the newest set not yet taken
	ended := make(chan error, 1)
	go func() { ended <- l.Source.Run(ctx, func(s *resource.Set) { replace(sets, s) }) }()

	err, sourceEnded := l.serve(ctx, sets, ended)
	cancel()
	if !sourceEnded {
		err = errors.Join(err, <-ended)
	}
	return err
}

// replace puts s into the channel, in place of a set that was not received yet. There is one sender.
func replace(sets chan *resource.Set, s *resource.Set) {
	for {
		select {
		case sets <- s:
			return
		default:
		}
		select {
		case <-sets:
		default:
		}
	}
}

func (l *Loop) serve(ctx context.Context, sets <-chan *resource.Set, ended <-chan error) (err error, sourceEnded bool) {
	state := state{loop: l, translator: NewTranslator(l.Options)}
	source := ended
	retry, again := time.NewTimer(0), time.NewTimer(0)
	retry.Stop()
	again.Stop()
	defer retry.Stop()
	defer again.Stop()
	var newest *resource.Set
	take := func() {
		set, at := state.hold(newest, time.Now())
		again.Stop()
		if !at.IsZero() {
			again.Reset(time.Until(at))
		}
		spare.Do(func() {
			state.translate(set)
			state.publish()
		})
	}
	for {
		select {
		case <-ctx.Done():
			return nil, sourceEnded
		case err := <-source:
			// A source with a single set may end; the set is still served.
			sourceEnded, source = true, nil
			if err != nil {
				return err, true
			}
			continue
		case set := <-sets:
			newest = l.settle(ctx, set, sets)
			take()
		case <-again.C:
			take()
		case <-retry.C:
			spare.Do(state.publish)
		}
		if state.report.Err != nil && state.report.Generation == 0 {
			return state.report.Err, sourceEnded
		}
		if state.unpublished() {
			retry.Reset(l.retryAfter())
		} else {
			retry.Stop()
		}
	}
}

// settle waits until no newer set has come for a while and returns the newest.
func (l *Loop) settle(ctx context.Context, set *resource.Set, sets <-chan *resource.Set) *resource.Set {
	if l.Settle <= 0 {
		return set
	}
	most := l.MaxSettle
	if most <= 0 {
		most = 10 * l.Settle
	}
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	quiet := time.NewTimer(l.Settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return set
		case <-deadline.C:
			return set
		case <-quiet.C:
			return set
		case set = <-sets:
			quiet.Reset(l.Settle)
		}
	}
}

func (l *Loop) retryAfter() time.Duration {
	if l.Retry > 0 {
		return l.Retry
	}
	return time.Second
}

func (l *Loop) logger() *slog.Logger {
	if l.Logger != nil {
		return l.Logger
	}
	return slog.New(slog.DiscardHandler)
}

// state is what the loop remembers between two sets.
type state struct {
	loop       *Loop
	translator *Translator
	behind     behind
	publishing publishing
	report     Report
	// whole is the newest translation, of which the parts are; nil when it is not valid.
	whole *model.Config
}

// hold is behind.hold where Kubernetes makes EndpointSlices.
func (s *state) hold(set *resource.Set, now time.Time) (held *resource.Set, again time.Time) {
	if !s.loop.Options.ProxyPerGateway {
		return set, time.Time{}
	}
	return s.behind.hold(set, now)
}

// translate makes a set what is wanted.
func (s *state) translate(set *resource.Set) {
	begun := time.Now()
	result, err := s.translator.Translate(set)
	r := &s.report
	r.Set, r.TranslateTime, r.Err = set, time.Since(begun), err
	r.Gateways, r.Events, r.Invalid, r.Sidecars = result.Gateways, result.Events, result.Invalid, result.Sidecars
	r.translated = translated{result.Statuses, result.Findings}
	if err != nil {
		s.whole = nil
		s.publishing.want(nil)
		return
	}
	if s.whole == nil || s.whole != result.Config && !s.whole.Equal(result.Config) {
		s.whole = result.Config
	}
	if !s.loop.Options.ProxyPerGateway {
		s.publishing.want(map[model.Owner]*model.Config{"": s.whole})
		return
	}
	s.publishing.want(s.publishing.divide(s.whole, result.owners(), result.Invalid))
}

// unpublished says that there is a valid configuration that is not being served, and may be.
func (s *state) unpublished() bool { return s.publishing.pending() }

// notApplied logs that a configuration is not served, and what is served instead.
func (s *state) notApplied(err error) {
	message := "configuration not applied, the last good one keeps serving"
	if s.report.Generation == 0 {
		message = "configuration not applied, nothing is served"
	}
	s.loop.logger().Error(message, "error", err, "generation", s.report.Generation)
}

// publish serves the wanted configurations, if they differ from those being served, and reports.
func (s *state) publish() {
	r := &s.report
	r.Changed = false
	switch p := &s.publishing; {
	case s.whole == nil:
		s.notApplied(r.Err)
	case r.Generation > 0 && !p.differs():
		r.Err = nil
		p.forget()
	default:
		begun := time.Now()
		told := p.errs
		p.note(s.loop.Publish(p.wanted))
		r.PublishTime = time.Since(begun)
		if err := p.failed(); err != nil {
			r.Err = fmt.Errorf("configuration not applied: %w", err)
			s.notApplied(err)
			break
		}
		r.Generation++
		r.Config, r.Err, r.Changed = s.whole, nil, true
		p.tell(s.loop.logger(), told)
		s.loop.logger().Info("configuration applied", "generation", r.Generation,
			"listeners", len(s.whole.Listeners), "routes", len(s.whole.Routes), "services", len(s.whole.Services))
	}
	if s.loop.Report == nil {
		return
	}
	out := s.report
	if s.loop.LeftOut != nil && out.Err == nil {
		if left := s.loop.LeftOut(); len(left) > 0 {
			out.translated.findings = slices.Concat(out.translated.findings, finding.LeftOut(left, out.Set.Origin))
			resource.SortFindings(out.translated.findings)
		}
	}
	s.loop.Report(out.WithUnpublished(s.publishing.errs))
}
