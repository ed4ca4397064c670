package resource

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/visible"
)

// assembly is a Set in the making.
type assembly struct {
	kinds    Kinds
	findings []Finding
	// last are the good objects of the previous reading, good those of this one.
	last, good map[Key]good
	// seen are the places where each object is defined, good or not.
	seen map[Key]Origin
	// broken are the files that hold something that could not be made out.
	broken map[string]bool
	over   map[passedOver]*overlooked
	// foreign is the Set's.
	foreign map[Key]Fields
	// rejected and drafts are the Set's.
	rejected map[Key]Finding
	drafts   map[Key]map[string]any
	// now is the time for which certificates are judged, next the time when the judgement changes.
	now, next time.Time
	// onHold means that the current document is in a file on hold, which may have lost documents to another file.
	onHold bool
}

// order returns the files in the order in which they count: by name, but files on hold last.
func (r *reader) order() []string {
	return slices.SortedFunc(maps.Keys(r.files), func(a, b string) int {
		if aHeld, bHeld := r.holds[a] != nil, r.holds[b] != nil; aHeld != bHeld {
			if aHeld {
				return 1
			}
			return -1
		}
		return cmp.Compare(a, b)
	})
}

// overlooked counts the objects of a kind that is not read.
type overlooked struct {
	first Origin
	count int
}

// set makes the Set of everything that was read.
func (r *reader) set(l *listing) *Set {
	r.decode()
	a := &assembly{
		kinds: r.kinds,
		last:  r.good, good: make(map[Key]good), seen: make(map[Key]Origin),
		broken: make(map[string]bool), over: make(map[passedOver]*overlooked), foreign: make(map[Key]Fields),
		rejected: make(map[Key]Finding),
		drafts:   make(map[Key]map[string]any),
		now:      r.now().Round(0), // the clock on the wall
	}
	documents := make(map[string]int) // by root
	for _, path := range r.order() {
		f := r.files[path]
		a.onHold = r.holds[path] != nil
		if f.err != nil {
			a.report(finding(CodeUnreadable, "", reason(f.err)), Origin{File: path})
			a.broken[path] = true
		}
		for _, p := range f.parts {
			a.document(r.documents[p.sum], path, p.line)
		}
		documents[l.root[path]] += len(f.parts)
	}
	a.unreadable(l.errs)
	for _, path := range r.paths {
		if path = filepath.Clean(path); path != stdinPath && documents[path] == 0 && !l.again[path] && l.errs[path] == nil {
			a.report(finding(CodeEmptyPath, "", "no document found"), Origin{File: path})
		}
	}
	a.keepLost(l)
	a.nameOverlooked()
	r.good = a.good
	set := a.finish()
	r.judged, r.next = a.now, a.next
	return set
}

// unreadable reports on paths that could not be read, on a bounded number.
func (a *assembly) unreadable(errs map[string]error) {
	for i, path := range slices.Sorted(maps.Keys(errs)) {
		if i == maxFindings-1 && len(errs) > maxFindings {
			a.report(finding(CodeUnreadable, "", fmt.Sprintf("%s (and %d more paths cannot be read)", reason(errs[path]), len(errs)-maxFindings)), Origin{File: path})
			return
		}
		a.report(finding(CodeUnreadable, "", reason(errs[path])), Origin{File: path})
	}
}

func (a *assembly) report(f Finding, at Origin) {
	f.Origin = at
	f.Ref.Kind, f.Ref.Namespace, f.Ref.Name, f.Ref.Field = visible.Text(f.Ref.Kind), visible.Text(f.Ref.Namespace), visible.Text(f.Ref.Name), visible.Text(f.Ref.Field)
	f.Message, f.Fix = visible.Text(strings.ReplaceAll(f.Message, "\n", " ")), visible.Text(f.Fix)
	a.findings = append(a.findings, f)
}

func (a *assembly) document(d *document, path string, line int) {
	for _, f := range d.findings {
		a.report(f, Origin{File: path, Line: line + f.Origin.Line})
	}
	if d.broken {
		a.broken[path] = true
	}
	for _, e := range d.entries {
		a.entry(e, path, line)
	}
}

func (a *assembly) entry(e entry, path string, line int) {
	at := Origin{File: path, Line: line + e.line}
	if e.passedOver != nil {
		if a.over[*e.passedOver] == nil {
			a.over[*e.passedOver] = &overlooked{first: at}
		}
		a.over[*e.passedOver].count++
		if _, twice := a.foreign[e.key]; e.key.Name != "" && !twice {
			a.foreign[e.key] = Fields{e.at, line}
		}
		return
	}
	if first, twice := a.seen[e.key]; twice && a.onHold {
		return
	} else if twice {
		f := finding(CodeDuplicate, "", fmt.Sprintf("defined twice: the definition in %s counts, this one is left out", first))
		f.Ref = e.key.Ref()
		a.report(f, at)
		return
	}
	a.seen[e.key] = at
	for _, f := range e.findings {
		a.report(f, Origin{File: path, Line: line + f.Origin.Line})
		if _, rejected := a.rejected[e.key]; e.object == nil && !rejected && f.Severity == Error {
			a.rejected[e.key] = a.findings[len(a.findings)-1]
		}
	}
	if e.object == nil {
		a.drafts[e.key] = e.draft
	}
	a.judge(e, at, Fields{e.at, line})
	if _, served := a.good[e.key]; served {
		delete(a.rejected, e.key)
		delete(a.drafts, e.key)
	}
}

// judge decides whether an object takes the place of the last good one.
func (a *assembly) judge(e entry, at Origin, fields Fields) {
	last, had := a.last[e.key]
	switch {
	case e.object == nil && had:
		a.keep(e.key, last, at, "this version is not valid")
	case e.object == nil:
	case had && a.better(last.certified, e.certified):
		if !e.certified.broken { // else the findings above say why
			f := finding(CodeCertificate, e.certified.field, e.certified.outside(a.now))
			f.Fix = "renew it, or set the machine's clock"
			a.report(e.certified.locate(f, e.key, at))
			a.next = earliest(a.next, e.certified.next(a.now))
		}
		a.keep(e.key, last, at, "the certificates of this version cannot be used")
	default:
		a.good[e.key] = good{e.object, at, fields, e.certified}
	}
}

// better reports whether certificates that were good should be kept rather than replaced by the new ones: if the new
// ones are broken, or are not valid now and the old ones are. If neither are valid, the user wants the newer ones.
func (a *assembly) better(last, next *certified) bool {
	if last == nil || next == nil || last.broken {
		return false
	}
	return next.broken || !next.valid(a.now) && last.valid(a.now)
}

func (a *assembly) keep(k Key, last good, at Origin, why string) {
	a.good[k] = last
	from := ""
	if o := last.origin.String(); o != "" {
		from = ", read from " + o + ","
	}
	f := finding(CodeLastGood, "", fmt.Sprintf("%s: the last good one%s is still served", why, from))
	f.Ref = k.Ref()
	a.report(f, at)
}

// keepLost keeps the objects of files that cannot be made out now.
func (a *assembly) keepLost(l *listing) {
	for k, last := range a.last {
		if _, there := a.seen[k]; !there && (a.broken[last.origin.File] || l.under(last.origin.File)) {
			a.keep(k, last, Origin{File: last.origin.File}, "its file cannot be read in full")
		}
	}
}

func (a *assembly) nameOverlooked() {
	for over, o := range a.over {
		msg := fmt.Sprintf("Weir does not read %s of %s: ignored", over.kind, over.apiVersion)
		if o.count > 1 {
			msg += fmt.Sprintf(" (%d objects)", o.count)
		}
		f := finding(CodeUnknownKind, "", msg)
		if read := a.kinds.siblings(over.apiVersion); read != "" {
			f = finding(CodeNotServed, "", strings.Replace(msg, ": ignored", ", so it has no effect", 1))
			f.Fix = "write it with kinds that Weir reads (" + read + "), or have something else serve it"
		}
		a.report(f, o.first)
	}
}

// date reports on the dates of an object's certificates.
func (a *assembly) date(s *Set, k Key, g good) {
	if g.certified == nil {
		return
	}
	a.next = earliest(a.next, g.certified.next(a.now))
	if f, ok := g.certified.expiry(a.now); ok {
		f, f.Origin = g.certified.locate(f, k, g.origin)
		s.Expiries[k] = f
	}
}

// finish adds the good objects. Endpoints become slices, unless their Service has its own: a cluster has both,
// mirrored.
func (a *assembly) finish() *Set {
	s := &Set{
		kinds: a.kinds, Origins: make(map[Key]Origin, len(a.good)), Fields: make(map[Key]Fields, len(a.good)), Expiries: make(map[Key]Finding), Rejected: a.rejected,
		Drafts: a.drafts,
	}
	sliced := make(map[name]bool)
	for k, g := range a.good {
		s.Origins[k], s.Fields[k] = g.origin, g.fields
		s.put(a.kinds.Find(k.Group, k.Kind), g.object)
		a.date(s, k, g)
		if slice, ok := g.object.(*discoveryv1.EndpointSlice); ok {
			sliced[name{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}] = true
		}
	}
	for k, g := range a.good {
		legacy, ok := g.object.(*legacyEndpoints)
		if !ok {
			continue
		}
		if sliced[legacy.service] {
			f := finding(CodeEndpointsOld, "", "the Service has EndpointSlices too: this Endpoints object is ignored")
			f.Ref = k.Ref()
			a.report(f, g.origin)
			continue
		}
		for _, slice := range legacy.slices {
			s.EndpointSlices = append(s.EndpointSlices, slice)
			s.Origins[Key{discoveryv1.GroupName, "EndpointSlice", slice.Namespace, slice.Name}] = g.origin
		}
	}
	s.PassedOver, s.overlooked = make(map[string]int, len(a.over)), make(map[string]Origin, len(a.over))
	for over, o := range a.over {
		s.PassedOver[over.apiVersion+" "+over.kind] = o.count
		s.overlooked[over.apiVersion+" "+over.kind] = o.first
	}
	s.Findings, s.foreign = a.findings, a.foreign
	s.sort()
	return s
}
