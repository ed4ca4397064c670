package controller

import (
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/weirmesh/weir/internal/process"
)

// sockets are where a replica listens.
type sockets struct {
	admin             *process.Admin // nil: nowhere
	feed, conversions *socket        // conversions may be nil: nowhere
}

// listen opens what the flags name.
func (o *Options) listen(admin http.Handler) (_ *sockets, err error) {
	s := &sockets{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.feed, err = open("--feed-address", o.feed); err != nil {
		return nil, err
	}
	if o.conversion.on() {
		if s.conversions, err = open("--conversion-address", o.conversion.address); err != nil {
			return nil, err
		}
	}
	if o.admin != "off" {
		if s.admin, err = process.ListenAdmin(net.Listen, o.admin, admin); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// close closes those that no task has taken.
func (s *sockets) close() {
	for _, one := range []*socket{s.feed, s.conversions} {
		if one != nil {
			one.close()
		}
	}
	if s.admin != nil {
		_ = s.admin.Listener.Close() // again, if it was served
	}
}

// socket is where a task listens: at once when the process starts, so that a wrong address ends it, and again each time the task begins anew.
type socket struct {
	flag, address string

	mu    sync.Mutex
	first net.Listener // nil once a task has it
}

func open(flag, address string) (*socket, error) {
	s := &socket{flag: flag, address: address}
	var err error
	s.first, err = s.listen()
	return s, err
}

// listen returns a listener, which the caller closes.
func (s *socket) listen() (net.Listener, error) {
	s.mu.Lock()
	l := s.first
	s.first = nil
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.flag, err)
	}
	return l, nil
}

func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil {
		_ = s.first.Close()
	}
}
