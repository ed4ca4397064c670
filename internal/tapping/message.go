package tapping

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// Stream is one of messages between two ends, each of which may send at any time. Send and Recv may be called by one
// goroutine each; both end when Context does.
type Stream interface {
	Context() context.Context
	Send(message []byte) error
	Recv() (message []byte, err error)
}

// Bounds of messages, in bytes, and of what they hold.
const (
	// MaxOrder bounds a message to a proxy, MaxLine one from it.
	MaxOrder, MaxLine = 512 << 10, 32 << 10
	// maxSides is how many sides a tap may have, maxSideText how long each of a side's three texts may be.
	maxSides, maxSideText = 2000, 253
	// maxBy bounds the text of whose a tap is.
	maxBy = 64
	// maxRefusal bounds the reason of a refusal.
	maxRefusal = 200
	// maxCount bounds what a line may count, so that sums are right.
	maxCount = 1 << 48
)

// order tells a proxy, or another replica, to open a tap, or to change the sides of an open one; with Close, to close it.
// An end that does not know one of its fields refuses it, since it would show more than was asked for.
type order struct {
	Tap     uint64           `json:"tap"`
	Close   bool             `json:"close,omitempty"`
	Method  string           `json:"method,omitempty"`
	Path    string           `json:"path,omitempty"`
	Lowest  int              `json:"lowest,omitempty"`
	Highest int              `json:"highest,omitempty"`
	Rate    int              `json:"rate,omitempty"`
	For     time.Duration    `json:"nanos,omitempty"`
	Sides   []telemetry.Side `json:"sides,omitempty"`
	// By is whose tap it is, a text that says it to replicas alone: see Hub.Who.
	By string `json:"by,omitempty"`
}

// line is what a proxy, or another replica, says of a tap: one of its fields besides Tap is set. Fields that are not known
// are ignored.
type line struct {
	Tap     uint64               `json:"tap"`
	Request *telemetry.Tapped    `json:"request,omitempty"`
	Counts  *telemetry.TapCounts `json:"counts,omitempty"`
	// Refused is why the tap is not, or not any more, open there.
	Refused string `json:"refused,omitempty"`
}

// newOrder is one for the time that is left.
func newOrder(tap uint64, q telemetry.TapQuery, sides telemetry.TapSides) order {
	o := order{Tap: tap, Method: q.Method, Path: q.PathPrefix, Lowest: q.Lowest, Highest: q.Highest, Rate: q.Rate, For: max(q.For, 1)}
	o.Sides = make([]telemetry.Side, 0, len(sides))
	for s := range sides {
		o.Sides = append(o.Sides, s)
	}
	slices.SortFunc(o.Sides, telemetry.Side.Compare)
	return o
}

// query is that of an order, and sides are its sides.
func (o *order) query() telemetry.TapQuery {
	return telemetry.TapQuery{Method: o.Method, PathPrefix: o.Path, Lowest: o.Lowest, Highest: o.Highest, Rate: o.Rate, For: o.For}
}

func (o *order) sides() telemetry.TapSides {
	sides := make(telemetry.TapSides, len(o.Sides))
	for _, s := range o.Sides {
		sides[s] = true
	}
	return sides
}

// encode writes an order or a line. Text that is no UTF-8 does not survive it.
func encode(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic("tapping: a message cannot be written as JSON: " + err.Error()) // there is nothing in it that cannot
	}
	return b
}

// parseOrder reads an order. If that fails, tap is the one that it is about, if it says so, and otherwise 0.
func parseOrder(message []byte) (o order, tap uint64, err error) {
	if len(message) > MaxOrder {
		return o, 0, fmt.Errorf("an order of %d bytes, at most %d may come", len(message), MaxOrder)
	}
	d := json.NewDecoder(bytes.NewReader(message))
	d.DisallowUnknownFields()
	if err = d.Decode(&o); err == nil {
		err = o.check()
	}
	if err == nil {
		err = ended(d)
	}
	if err == nil {
		return o, o.Tap, nil
	}
	var about struct {
		Tap uint64 `json:"tap"`
	}
	_ = json.Unmarshal(message, &about)
	return order{}, about.Tap, err
}

// ended fails if a message has something behind its object.
func ended(d *json.Decoder) error {
	if _, err := d.Token(); err != io.EOF {
		return errors.New("a message with something behind it")
	}
	return nil
}

func (o *order) check() error {
	if o.Tap == 0 {
		return errors.New("an order without the number of its tap")
	}
	if o.Close {
		return nil
	}
	q := o.query()
	if err := q.Check(); err != nil {
		return err
	}
	if len(o.By) > maxBy {
		return fmt.Errorf("whose it is has more than %d bytes", maxBy)
	}
	if len(o.Sides) > maxSides {
		return telemetry.ErrTapSides
	}
	for _, s := range o.Sides {
		if max(len(s.Kind), len(s.Namespace), len(s.Name)) > maxSideText || s == (telemetry.Side{}) {
			return fmt.Errorf("a side that is none, or has a text of more than %d bytes", maxSideText)
		}
	}
	return nil
}

// parseLine reads a line. Another end may say anything in it.
func parseLine(message []byte) (l line, err error) {
	if len(message) > MaxLine {
		return l, fmt.Errorf("a line of %d bytes, at most %d may come", len(message), MaxLine)
	}
	d := json.NewDecoder(bytes.NewReader(message))
	if err := d.Decode(&l); err != nil {
		return line{}, err
	}
	if err := ended(d); err != nil {
		return line{}, err
	}
	if c := l.Counts; c != nil && (c.Matched > maxCount || c.Shown > maxCount || c.Proxies < 0 || c.Silent < 0 || max(c.Proxies, c.Silent) > maxCount) {
		return line{}, errors.New("counts that nothing can have")
	}
	l.Refused = l.Refused[:min(len(l.Refused), maxRefusal)]
	return l, nil
}
