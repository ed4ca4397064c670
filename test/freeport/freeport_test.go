package freeport

import "testing"

func TestNoPortIsGivenTwice(t *testing.T) {
	given := map[int]bool{}
	for range 200 {
		port, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("%d is given twice", port)
		}
		given[port] = true
	}
}
