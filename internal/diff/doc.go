// Package diff compares two configurations by what becomes of requests: which are answered differently, and by whom. It is pure.
//
// It asks both tables the same requests: for each match of either configuration some that meet it, alone and together with the
// conditions of its neighbours, so that a change of precedence shows too. It does not prove that all other requests stay as they
// are: of an expression it knows a few examples, and above a bound it asks fewer combinations and says so.
//
// "weir diff" prints what it finds.
package diff
