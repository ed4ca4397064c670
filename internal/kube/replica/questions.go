package replica

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Question is what the leader asks the other replicas by the board: whether the sidecars that are connected to them serve a
// configuration that was made of objects as they are.
type Question struct {
	Objects []Object `json:"objects"`
	// Services are those that the objects are about, "namespace/name".
	Services []string `json:"services"`
}

// Object is an object as it is stored.
type Object struct {
	Group      string `json:"group,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation,omitempty"`
}

// Bounds of questions.
const (
	questionAge  = 30 * time.Second // how long one is asked after somebody wanted to know it last
	servedAge    = 10 * time.Minute // how long it is known that it was answered by yes, likewise
	maxQuestions = 2_000
	maxServed    = 10_000
	// questionsSize bounds questions, and the answers to them, in bytes packed, questionsRead unpacked.
	questionsSize, questionsRead = 128 << 10, 4 << 20
	maxAwaited                   = 512 // bytes of an answer
)

// asked is a question of this replica.
type asked struct {
	Question
	last time.Time
}

func (q *Question) id() string {
	text, _ := json.Marshal(q) // texts and numbers alone
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Ask asks the other replicas to which sidecars are connected, and returns what they have said so far: what they await, empty if
// nothing. Changed is called when that is another thing. Replicas of older releases are not asked, as they answer nothing.
func (b *Board) Ask(q Question) (awaited string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := q.id()
	if _, served := b.served[id]; served {
		b.served[id] = time.Now()
		return ""
	}
	asking := false
	for _, name := range slices.Sorted(maps.Keys(b.others)) {
		r := b.others[name]
		if !r.answering || !b.holders[name] {
			continue
		}
		asking = true
		known := false
		if awaited, known = r.answers[id]; known && awaited == "" {
			continue
		}
		b.note(id, q)
		if !known {
			return fmt.Sprintf("the controller %s does not say yet whether the sidecars that are connected to it serve the configuration", name)
		}
		return awaited
	}
	if delete(b.questions, id); asking && len(b.served) < maxServed {
		if b.served == nil {
			b.served = map[string]time.Time{}
		}
		b.served[id] = time.Now()
	}
	return ""
}

// note has a question written.
func (b *Board) note(id string, q Question) {
	old, there := b.questions[id]
	if !there {
		if len(b.questions) >= maxQuestions {
			return // it is asked again
		}
		if b.questions == nil {
			b.questions = map[string]asked{}
		}
		b.Tell()
	}
	if now := time.Now(); !there || now.Sub(old.last) > time.Second {
		b.questions[id] = asked{q, now}
	}
}

// open are the questions of this replica that somebody has wanted to know lately, by their names.
func (b *Board) open() map[string]Question {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.served, func(_ string, last time.Time) bool { return time.Since(last) > servedAge })
	out := map[string]Question{}
	for id, q := range b.questions {
		if time.Since(q.last) > questionAge {
			delete(b.questions, id)
			continue
		}
		out[id] = q.Question
	}
	return out
}

// answer answers the questions of the others, of which those that were served before stay so.
func (b *Board) answer(before map[string]string) map[string]string {
	out := map[string]string{}
	if b.Answer == nil {
		return out
	}
	b.mu.Lock()
	all := map[string]Question{}
	for _, r := range b.others {
		maps.Copy(all, r.questions)
	}
	b.mu.Unlock()
	for id, q := range all {
		if said, known := before[id]; known && said == "" {
			out[id] = ""
			continue
		}
		said := b.Answer(q)
		out[id] = said[:min(len(said), maxAwaited)]
	}
	return out
}

// AnswerAgain has those questions of other replicas answered again soon that are not answered by yes.
func (b *Board) AnswerAgain() {
	if b.questioned() {
		b.Tell()
	}
}

// questioned reports whether another replica has a question that is not answered by yes.
func (b *Board) questioned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.others {
		for id := range r.questions {
			if said, known := b.said[id]; !known || said != "" {
				return true
			}
		}
	}
	return false
}

// hold finds out at which other replicas sidecars are, of which some may have gone elsewhere since. b.mu is held.
func (b *Board) hold() {
	newest := map[string]int64{}
	note := func(all []Sidecar) {
		for _, s := range all {
			newest[s.Pod] = max(newest[s.Pod], s.Since)
		}
	}
	note(b.own)
	for _, r := range b.others {
		note(r.sidecars)
	}
	b.holders = map[string]bool{}
	for name, r := range b.others {
		b.holders[name] = slices.ContainsFunc(r.sidecars, func(s Sidecar) bool { return s.Since >= newest[s.Pod] })
	}
}

// packed packs questions or answers, of which those are left out that do not fit.
func packed[T any](all map[string]T) (data []byte, left int, err error) {
	names := slices.Sorted(maps.Keys(all))
	for n := min(len(names), maxQuestions); ; n /= 2 {
		some := make(map[string]T, n)
		for _, name := range names[:n] {
			some[name] = all[name]
		}
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		if err := errors.Join(json.NewEncoder(z).Encode(some), z.Close()); err != nil {
			return nil, 0, err
		}
		if out.Len() <= questionsSize || n == 0 {
			return out.Bytes(), len(names) - n, nil
		}
	}
}

// unpacked reads what packed wrote; nothing is none.
func unpacked[T any](data []byte) (all map[string]T, err error) {
	if len(data) == 0 {
		return nil, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	err = json.NewDecoder(io.LimitReader(z, questionsRead)).Decode(&all)
	if err == nil && len(all) > maxQuestions {
		err = fmt.Errorf("%d questions, and at most %d may be", len(all), maxQuestions)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// compareObjects puts objects in an order that does not depend on how they were found.
func compareObjects(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// NewQuestion is one about objects and the Services that these are about.
func NewQuestion(objects []Object, services map[string]bool) Question {
	return Question{slices.SortedFunc(slices.Values(objects), compareObjects), slices.Sorted(maps.Keys(services))}
}
