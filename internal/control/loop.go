package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/spare"
)

// Report is where the loop stands after a set, or after another attempt to publish one.
type Report struct {
	// Generation counts the published configurations; 0 means none yet.
	Generation uint64
	// Config is the current configuration, the last that was published; nil if Generation is 0.
	Config *model.Config
	// Set is the newest set. Statuses, Events and Findings are its own, whether or not it could be published.
	Set      *resource.Set
	Statuses []resource.Status
	Events   []resource.Event
	Findings []resource.Finding
	// Invalid is Result.Invalid of the newest set.
	Invalid map[model.GatewayKey]error
	// Err is why the newest set is not served; nil if it is.
	Err error
	// Changed is true if this report's configuration was published just now.
	Changed bool
	// TranslateTime is how long the newest set took to translate, PublishTime how long the last attempt to publish took.
	TranslateTime, PublishTime time.Duration
}

// Loop translates and publishes the sets of a source, in plain calls one after the other. The zero values of its times
// are usable; Source and Publish are required.
type Loop struct {
	Source resource.Source
	// Options of the translation.
	Options Options
	// Publish makes a configuration the current one, or fails and does not change the current one. It is called from
	// one goroutine, and never with a configuration equal to the current one.
	Publish func(*model.Config) error
	// LeftOut, if set, returns the parts of the last published configuration that could not be served. They become
	// findings.
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

// Run blocks until ctx ends, which is not an error, or until the source fails. It fails if the first configuration
// cannot be published: then nothing is served.
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
	retry := time.NewTimer(0)
	retry.Stop()
	defer retry.Stop()
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
			set = l.settle(ctx, set, sets)
			spare.Do(func() {
				state.translate(set)
				state.publish()
			})
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
	report     Report
	// findings are the findings of the translation.
	findings []resource.Finding
	// wanted is the newest translation, nil when it is not valid.
	wanted *model.Config
}

func (s *state) translate(set *resource.Set) {
	begun := time.Now()
	result, err := s.translator.Translate(set)
	s.report.Set, s.report.TranslateTime = set, time.Since(begun)
	s.report.Statuses, s.report.Events, s.report.Findings = result.Statuses, result.Events, result.Findings
	s.findings = result.Findings
	s.report.Invalid = result.Invalid
	s.wanted, s.report.Err = result.Config, err
	if err != nil {
		s.wanted = nil
	}
}

// unpublished is true if there is a valid configuration that is not served.
func (s *state) unpublished() bool { return s.wanted != nil && s.wanted != s.report.Config }

// notApplied logs that a configuration is not served, and what is served instead.
func (s *state) notApplied(err error) {
	message := "configuration not applied, the last good one keeps serving"
	if s.report.Generation == 0 {
		message = "configuration not applied, nothing is served"
	}
	s.loop.logger().Error(message, "error", err, "generation", s.report.Generation)
}

// publish publishes the wanted configuration, if it differs from the current one, and reports.
func (s *state) publish() {
	s.report.Changed = false
	switch {
	case s.wanted == nil:
		s.notApplied(s.report.Err)
	case s.report.Config != nil && s.wanted.Equal(s.report.Config):
		s.wanted, s.report.Err = s.report.Config, nil
	default:
		begun := time.Now()
		err := s.loop.Publish(s.wanted)
		s.report.PublishTime = time.Since(begun)
		if err != nil {
			s.report.Err = fmt.Errorf("configuration not applied: %w", err)
			s.notApplied(err)
			break
		}
		s.report.Generation++
		s.report.Config, s.report.Err, s.report.Changed = s.wanted, nil, true
		s.loop.logger().Info("configuration applied", "generation", s.report.Generation,
			"listeners", len(s.wanted.Listeners), "routes", len(s.wanted.Routes), "services", len(s.wanted.Services))
	}
	if s.loop.LeftOut != nil && s.report.Err == nil {
		if left := s.loop.LeftOut(); len(left) > 0 {
			s.report.Findings = slices.Concat(s.findings, finding.LeftOut(left, s.report.Set.Origin))
			resource.SortFindings(s.report.Findings)
		}
	}
	if s.loop.Report != nil {
		s.loop.Report(s.report)
	}
}
