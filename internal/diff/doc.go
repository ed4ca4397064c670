// Package diff compares two configurations by their behaviour: which requests are answered differently, and by whom. It
// is pure.
//
// It matches the same requests against both tables: for each match of either configuration some that meet it, alone and
// together with the conditions of its neighbours, so that a change of precedence shows, too. It does not prove that all
// other requests stay the same: it knows a few examples of an expression, and above a bound it compares fewer
// combinations and reports that.
//
// It compares what policies allow in the same way: calls that meet each policy of either configuration, by each kind of
// client that the policies tell apart.
//
// "weir diff" prints its result.
package diff
