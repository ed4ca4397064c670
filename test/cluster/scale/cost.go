package scale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/cluster/process"
)

// ticks is how many of the kernel's units of processor time a second has (USER_HZ).
const ticks = 100

// metrics returns those of the controller that have no labels.
func (r *run) metrics(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+controllerAdmin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := r.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	out := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.Contains(name, "{") {
			out[name] = v
		}
	}
	return out, lines.Err()
}

// sent is what the feed has sent so far.
func (r *run) sent(ctx context.Context) (Sent, error) {
	m, err := r.metrics(ctx)
	return Sent{
		Bytes: m["weir_controller_feed_sent_bytes_total"], Parts: m["weir_controller_feed_sent_parts_total"], Responses: m["weir_controller_feed_responses_total"],
	}, err
}

// cost is what was spent so far, in seconds.
type cost struct{ controller, proxy, translate, publish, translations, publications float64 }

func (r *run) readCost(ctx context.Context) (cost, error) {
	m, err := r.metrics(ctx)
	controller, controllerErr := processorTime(r.controller)
	proxy, proxyErr := processorTime(r.proxy)
	return cost{
		controller: controller, proxy: proxy,
		translate: m["weir_controller_translate_seconds_sum"], translations: m["weir_controller_translate_seconds_count"],
		publish: m["weir_controller_publish_seconds_sum"], publications: m["weir_controller_publish_seconds_count"],
	}, errors.Join(err, controllerErr, proxyErr)
}

func (c cost) since(before cost, changes int) Cost {
	n := float64(changes)
	return Cost{
		ControllerCPU: (c.controller - before.controller) / n, ProxyCPU: (c.proxy - before.proxy) / n,
		Translate: (c.translate - before.translate) / max(1, c.translations-before.translations),
		Publish:   (c.publish - before.publish) / max(1, c.publications-before.publications),
	}
}

// processorTime that a program has used, in seconds.
func processorTime(p *process.Process) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third on, see proc_pid_stat(5)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", p.Pid(), text)
	}
	user, userErr := strconv.ParseFloat(fields[11], 64)
	system, systemErr := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks, errors.Join(userErr, systemErr)
}

// memory reads how much the programs have, after a while of rest, and had at most.
func (r *run) memory(ctx context.Context) error {
	sleep(ctx, r.Rest)
	var controllerErr, proxyErr error
	r.result.Controller, controllerErr = memoryOf(r.controller)
	r.result.Proxy, proxyErr = memoryOf(r.proxy)
	return errors.Join(controllerErr, proxyErr)
}

func memoryOf(p *process.Process) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		n, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return m, err
		}
		switch fields[0] {
		case "VmHWM:":
			m.Peak = n * 1024 / 1e6
		case "VmRSS:":
			m.Now = n * 1024 / 1e6
		}
	}
	return m, nil
}

// loadAverage is that of the last minute, of the whole machine.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}

// profile keeps profiles of both programs while changes are made. Without one, the measurement goes on.
func (r *run) profile(ctx context.Context, what string) {
	for name, path := range map[string]string{"cpu": "profile?seconds=15", "heap": "heap", "allocs": "allocs?seconds=15"} {
		for program, address := range map[string]string{"controller": controllerAdmin, "proxy": proxyAdmin} {
			if err := r.keep(ctx, "http://"+address+"/debug/pprof/"+path, filepath.Join(r.Profiles, what+"-"+program+"-"+name)); err != nil {
				r.say("profile: %v", err)
			}
		}
	}
}

func (r *run) keep(ctx context.Context, url, file string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: r.http.Transport, Timeout: time.Minute}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
