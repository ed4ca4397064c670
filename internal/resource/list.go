package resource

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Store is where a Set has the objects of a kind: a List.
type Store interface {
	// holds is the type of the objects.
	holds() reflect.Type
	// add puts an object at the end, fill n objects. They panic for those of another type.
	add(s *Set, object any)
	fill(s *Set, n int, object func(i int) any)
	sort(s *Set)
	// same reports whether two sets have the very same objects.
	same(a, b *Set) bool
	// each calls f with each object until it returns false.
	each(s *Set, f func(metav1.Object) bool)
}

// List is the objects of one kind in Sets: P is a pointer to their Go type. NewList makes one that is in no field of a Set, so that what
// it holds is had by In alone; ListIn makes one for a field.
type List[P metav1.Object] struct {
	// field is nil if there is none.
	field func(*Set) *[]P
}

// NewList returns one that is in no field of a Set. Each call makes another list.
func NewList[P metav1.Object]() *List[P] { return &List[P]{} }

// ListIn returns one that is a field of a Set.
func ListIn[P metav1.Object](field func(*Set) *[]P) *List[P] { return &List[P]{field} }

// In returns the objects that a Set has, by namespace and name, read-only.
func (l *List[P]) In(s *Set) []P {
	if l.field != nil {
		return *l.field(s)
	}
	if all, ok := s.lists[l].(*[]P); ok {
		return *all
	}
	return nil
}

// to returns the list of a Set that is being made.
func (l *List[P]) to(s *Set) *[]P {
	if l.field != nil {
		return l.field(s)
	}
	all, ok := s.lists[l].(*[]P)
	if !ok {
		all = new([]P)
		if s.lists == nil {
			s.lists = make(map[Store]any)
		}
		s.lists[l] = all
	}
	return all
}

func (l *List[P]) holds() reflect.Type { return reflect.TypeFor[P]() }

func (l *List[P]) add(s *Set, object any) {
	to := l.to(s)
	*to = append(*to, l.typed(object))
}

func (l *List[P]) typed(object any) P {
	p, ok := object.(P)
	if !ok {
		panic(fmt.Sprintf("%T is not of the list of %T", object, p))
	}
	return p
}

func (l *List[P]) fill(s *Set, n int, object func(i int) any) {
	to := l.to(s)
	*to = slices.Grow(*to, n)
	for i := range n {
		*to = append(*to, l.typed(object(i)))
	}
}

func (l *List[P]) sort(s *Set) {
	slices.SortFunc(*l.to(s), func(a, b P) int {
		if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
}

func (l *List[P]) same(a, b *Set) bool {
	return slices.EqualFunc(l.In(a), l.In(b), func(x, y P) bool { return any(x) == any(y) })
}

func (l *List[P]) each(s *Set, f func(metav1.Object) bool) {
	for _, o := range l.In(s) {
		if !f(o) {
			return
		}
	}
}
