package model

import (
	"reflect"
	"time"
	"unsafe"
)

// Equal is true if two configurations have the same values, and so the same encoding. It does not compare what the two
// share in memory, so a small change costs little. reflect.DeepEqual has the same result, but keeps a record of what it
// visited, which the model does not need, since it is a tree.
func (c *Config) Equal(o *Config) bool {
	for _, l := range Lists {
		if !l.Equal(c, o) {
			return false
		}
	}
	return true
}

func sameSlice[T any](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	if unsafe.SliceData(a) == unsafe.SliceData(b) {
		return true
	}
	for i := range a {
		if !same(reflect.ValueOf(&a[i]).Elem(), reflect.ValueOf(&b[i]).Elem()) {
			return false
		}
	}
	return true
}

var timeType = reflect.TypeFor[time.Time]()

// same compares addressable values of one type. It returns false for kinds that the model does not have.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String:
		return a.String() == b.String()
	case reflect.Bool:
		return a.Bool() == b.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return a.Int() == b.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return a.Uint() == b.Uint()
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() || a.UnsafePointer() == b.UnsafePointer() {
			return a.UnsafePointer() == b.UnsafePointer()
		}
		return same(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
			return false
		}
		if a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Struct:
		if a.Type() == timeType {
			return *a.Addr().Interface().(*time.Time) == *b.Addr().Interface().(*time.Time)
		}
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return false
}
