package upstream

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 2, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var addresses []string
			for i := range n {
				addresses = append(addresses, fmt.Sprintf("10.0.%d.%d:80", i/256, i%256))
			}
			svc := apply(b, newSet(b, Options{}), config(addresses...))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					svc.Pick(nil)
				}
			})
		})
	}
}

func BenchmarkPickFor(b *testing.B) {
	for _, n := range []int{2, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			svc, client := apply(b, newSet(b, Options{}), sticky(n)), clients(1)[0]
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					svc.PickFor(client, nil)
				}
			})
		})
	}
}

// BenchmarkGetPut takes and gives back idle connections of one endpoint from all processors: the most contended case.
func BenchmarkGetPut(b *testing.B) {
	srv := echoServer(b)
	e := one(b, newSet(b, Options{}), srv.address())
	for _, check := range []bool{false, true} {
		b.Run(fmt.Sprintf("alive=%t", check), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if check {
						e.set.epoch.Add(2)
					}
					c, _, err := e.Get(time.Time{})
					if err != nil {
						b.Error(err)
						return
					}
					e.Put(c)
				}
			})
		})
	}
}

func BenchmarkDeadline(b *testing.B) {
	srv := echoServer(b)
	c, err := one(b, newSet(b, Options{}), srv.address()).Dial(time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	now := time.Now()
	for _, slack := range []time.Duration{0, time.Second} {
		b.Run(fmt.Sprint("slack=", slack), func(b *testing.B) {
			for i := range b.N {
				c.ReadBy(now.Add(time.Minute+time.Duration(i)*50*time.Microsecond), slack)
			}
		})
	}
}

func BenchmarkExchange(b *testing.B) {
	srv := echoServer(b)
	svc := apply(b, newSet(b, Options{}), config(srv.address()))
	line := []byte("a line that is answered\n")
	var failed atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			e := svc.Pick(nil)
			c, _, err := e.Get(time.Time{})
			if err != nil {
				failed.Add(1)
				continue
			}
			c.Write(line)
			if _, err := c.Fill(); err != nil && err != io.EOF {
				failed.Add(1)
			}
			c.Discard(len(c.Buffered()))
			e.Put(c)
		}
	})
	if failed.Load() > 0 {
		b.Errorf("%d exchanges failed", failed.Load())
	}
}
