package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of a connection and of the requests on it. Reading, which begins with the wait for a place, bounds how long a
// slow sender keeps one. A handler whose answer lasts moves the deadline of its writing on (http.ResponseController).
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 20 * time.Second // a handler's wait for a place included
	idleTimeout  = 2 * time.Minute
	stopTime     = 5 * time.Second
	// maxHeader is in bytes: an API server sends on who asks, with all groups that this user is in.
	maxHeader = 32 << 10
	// maxStreams is of a connection. What lasts takes some of them, and leaves enough for what is short. Handlers bound
	// what is under way on all connections together.
	maxStreams = 128
	// buffered is what a connection may send, in bytes, before a handler reads it.
	buffered = 64 << 10
)

// Serve answers API servers over TLS until ctx ends, which is not an error; requests under way are finished, and cut off
// if that takes long. It closes l. Clients are asked for a certificate and may have none: the handler judges whom it needs
// to know.
func Serve(ctx context.Context, l net.Listener, h http.Handler, certificate func() (*tls.Certificate, error)) error {
	server := &http.Server{
		Handler: h, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // scanners, and API servers that do not trust the certificate yet
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			ClientAuth:     tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: buffered, MaxReceiveBufferPerStream: buffered},
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if server.Shutdown(ending) != nil {
			_ = server.Close()
		}
	})
	err := server.ServeTLS(l, "", "")
	if !stop() {
		<-stopped
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering API servers: %w", err)
	}
	return nil
}

// Leaving returns h for a server that ends some time after asked has: from then on each answer makes its client leave the
// connection (Connection: close; over HTTP/2 a GOAWAY that lets streams finish), so that the next request goes on a new one,
// to a replica that stays if the Service has another. Without it a client that keeps asking holds the connection until
// Serve closes it, and what it sends in that moment fails: API servers do not send a webhook's request twice.
func Leaving(asked context.Context, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
