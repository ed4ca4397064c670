//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"time"
)

const (
	idleSettle = 5 * time.Second
	idleRounds = 3 // memory hardly differs from one to the next
)

// compareIdle measures the memory of idle connections, each time in a fresh process.
func (b *bench) compareIdle(s scenario) []*series {
	var all []*series
	for _, c := range b.contenders(s) {
		all = append(all, &series{contender: c})
	}
	for round := range min(b.rounds, idleRounds) {
		for _, one := range all {
			if one.err != nil || b.ctx.Err() != nil {
				continue
			}
			sample, err := b.measureIdle(one.contender, idleSettle)
			if err != nil {
				one.err = err
				continue
			}
			one.samples = append(one.samples, sample)
			fmt.Fprintf(b.log, "%-12s round %d  %-18s %7.2f KiB a connection, %.0f MiB in all\n", s.name, round+1, one.label, sample.cost, sample.total)
		}
	}
	return all
}

// measureIdle starts a proxy, and compares its memory before and after.
func (b *bench) measureIdle(c contender, settle time.Duration) (sample, error) {
	p, err := b.startProxy(c)
	if err != nil {
		return sample{}, err
	}
	defer b.stop(p.process)
	time.Sleep(settle / 5)
	before, err := p.process.memory()
	if err != nil {
		return sample{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return sample{}, err
	}
	cmd := exec.CommandContext(b.ctx, self, "idle", fmt.Sprint("-port=", p.port), fmt.Sprint("-conns=", c.setting.Idle), fmt.Sprint("-tls=", c.setting.TLS))
	cmd.Stderr = p.process.log
	in, err := cmd.StdinPipe()
	if err != nil {
		return sample{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	if err := cmd.Start(); err != nil {
		return sample{}, err
	}
	var after int
	_, err = bufio.NewReader(out).ReadByte()
	if err == nil {
		time.Sleep(settle)
		if after, err = p.process.memory(); err == nil {
			_, err = in.Write([]byte("\n"))
		}
	}
	in.Close()
	if failed := cmd.Wait(); failed != nil { // it says more
		return sample{}, fmt.Errorf("%w: %s", failed, p.process.output())
	}
	if err != nil {
		return sample{}, err
	}
	m := measured{requests: c.setting.Idle, elapsed: time.Second}
	return sample{measured: m, cost: float64(after-before) / float64(c.setting.Idle) / (1 << 10), total: float64(after) / (1 << 20)}, nil
}
