package resource

import (
	"fmt"
	"strings"
	"testing"
)

func manyRoutes(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n" + route(fmt.Sprintf("r%d", i), fmt.Sprintf("h%d.example", i)))
	}
	return b.String()
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		dir := b.TempDir()
		write(b, dir, "routes.yaml", manyRoutes(n))
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			for b.Loop() {
				if set := mustLoad(b, dir); len(set.HTTPRoutes) != n {
					b.Fatal(set.Findings)
				}
			}
		})
	}
}

func BenchmarkReloadOfOneChangedRoute(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, "routes.yaml", manyRoutes(10000))
	r := newReader(everything, []string{dir})
	l := list(r.paths)
	r.read(l)
	r.set(l)
	i := 0
	for b.Loop() {
		i++
		write(b, dir, "one.yaml", route("changed", fmt.Sprintf("h%d.example", i)))
		l := list(r.paths)
		if !r.read(l) {
			b.Fatal("no change")
		}
		if set := r.set(l); len(set.HTTPRoutes) != 10001 {
			b.Fatal(set.Findings)
		}
	}
}

// BenchmarkCompile is what the first object of a kind costs.
func BenchmarkCompile(b *testing.B) {
	for _, k := range everything {
		if !k.Custom() {
			continue
		}
		b.Run(k.Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := k.Definition.compile(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
