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

// fewIdle is with how many connections the memory with many is compared. The proxies are set up for as many as they get: what one reserves
// beforehand counts like what another takes when they come.
const fewIdle = 100

// measureIdle compares a proxy's memory with few connections and with many.
func (b *bench) measureIdle(c contender, settle time.Duration) (sample, error) {
	many := c.setting.Idle
	c.setting.Idle = fewIdle
	before, err := b.idleMemory(c, settle)
	if err != nil {
		return sample{}, err
	}
	c.setting.Idle = many
	after, err := b.idleMemory(c, settle)
	if err != nil {
		return sample{}, err
	}
	m := measured{requests: many, elapsed: time.Second}
	return sample{measured: m, cost: float64(after-before) / float64(many-fewIdle) / (1 << 10), total: float64(after) / (1 << 20)}, nil
}

// idleMemory starts a proxy and is its memory with the setting's connections.
func (b *bench) idleMemory(c contender, settle time.Duration) (bytes int, err error) {
	p, err := b.startProxy(c)
	if err != nil {
		return 0, err
	}
	defer b.stop(p.processes...)
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(b.ctx, self, "idle", fmt.Sprint("-port=", p.port), fmt.Sprint("-conns=", c.setting.Idle), fmt.Sprint("-tls=", c.setting.TLS))
	cmd.Stderr = p.processes[0].log
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if _, err = bufio.NewReader(out).ReadByte(); err == nil {
		time.Sleep(settle)
		if bytes, err = p.processes[0].memory(); err == nil {
			_, err = in.Write([]byte("\n"))
		}
	}
	in.Close()
	if failed := cmd.Wait(); failed != nil { // it says more
		return 0, fmt.Errorf("%w: %s", failed, p.output())
	}
	return bytes, err
}
