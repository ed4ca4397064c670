package conversion

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

// Timeouts of a connection. Reading, which begins with the wait for a place, bounds how long a slow sender keeps one.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 20 * time.Second // maxWait included
	idleTimeout  = 2 * time.Minute
	stopTime     = 5 * time.Second
)

// Serve answers reviews over TLS until ctx ends, which is not an error; reviews under way are finished. It closes l.
func Serve(ctx context.Context, l net.Listener, h *Handler, certificate func() (*tls.Certificate, error)) error {
	server := &http.Server{
		Handler: h, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 4 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // scanners, and API servers that do not trust the certificate yet
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 32, MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10},
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
		return fmt.Errorf("conversion webhook: %w", err)
	}
	return nil
}
