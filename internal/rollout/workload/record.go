package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

const (
	// RecordAnnotation of a Rollout has its Record, as JSON.
	RecordAnnotation = "rollouts.weirmesh.github.io/workload"
	// HeldLabel of a workload says that it is held. Its value is what the admission webhook, which sees the workload
	// alone, found in the field that it changed; ByController if the Record says how everything was.
	HeldLabel = "rollouts.weirmesh.github.io/held"
	// ByController is a value of HeldLabel.
	ByController = "true"
	// maxRecord bounds the text of a Record, in bytes.
	maxRecord = 16 << 10
)

// Record is what a Rollout remembers of its workload during a release.
type Record struct {
	// UID of the workload: what is remembered of another one of the same name says nothing.
	UID string `json:"uid"`
	// Stable is the revision that served when the release began.
	Stable string `json:"stable,omitempty"`
	// Pods is how many pods the revision Revision was told to have.
	Revision string `json:"revision,omitempty"`
	Pods     int32  `json:"pods"`
	// Was are fields of the workload's spec as its user has them, by their paths; null where he has none. It is nil once they
	// are back.
	Was fields `json:"was,omitempty"`
}

// ReadRecord reads the annotation of a Rollout; nil without one. Somebody else may have written it.
func ReadRecord(text string) (*Record, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxRecord {
		return nil, fmt.Errorf("the annotation %s is longer than %d bytes", RecordAnnotation, maxRecord)
	}
	r := &Record{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), r); err != nil {
		return nil, fmt.Errorf("the annotation %s is not the JSON that Weir writes", RecordAnnotation)
	}
	if r.UID == "" || r.Pods < 0 {
		return nil, errors.New("the annotation " + RecordAnnotation + " lacks the workload's UID, or has a negative number of pods")
	}
	for path, v := range r.Was {
		if !mayBe(path[strings.LastIndexByte(path, '.')+1:], v) {
			return nil, fmt.Errorf("the annotation %s has a value for %q that no workload has there", RecordAnnotation, path)
		}
	}
	return r, nil
}

// mayBe reports whether the field of that name can have a value: what no API server takes could never be put back. Names
// that no kind of workload has here are left alone, as nobody reads them.
func mayBe(name string, v any) bool {
	if v == nil {
		return true
	}
	switch name {
	case "paused", "unorderedUpdate":
		_, ok := v.(bool)
		return ok
	case "type":
		_, ok := v.(string)
		return ok
	case "maxSurge", "maxUnavailable", "partition":
		switch v := v.(type) {
		case int64:
			return v >= 0 && v <= math.MaxInt32
		case string:
			digits, percent := strings.CutSuffix(v, "%")
			_, err := strconv.ParseUint(digits, 10, 31)
			return percent && err == nil
		}
		return false
	case "rollingUpdate":
		m, ok := v.(map[string]any)
		for name, v := range m {
			ok = ok && mayBe(name, v)
		}
		return ok
	}
	return true
}

// Text is the annotation's value.
func (r *Record) Text() (string, error) {
	text, err := json.Marshal(r)
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("what is to be remembered of the workload takes %d bytes, and %d are the most", len(text), maxRecord)
	}
	return string(text), err
}

func (r *Record) copy() *Record {
	if r == nil {
		return nil
	}
	c := *r
	c.Was = maps.Clone(r.Was)
	return &c
}

// none is the Record with no pods of the new revision.
func (r *Record) none() *Record {
	c := r.copy()
	if c != nil {
		c.Pods = 0
	}
	return c
}
