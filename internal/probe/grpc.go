package probe

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
)

// run calls Health/Check, and passes when the service serves (github.com/grpc/grpc, doc/health-checking.md).
func (g *GRPC) run(ctx context.Context, pod, agent string) error {
	conn, err := grpc.NewClient("passthrough:///"+address(pod, g.Port), grpc.WithUserAgent(agent), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(body)))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: g.Service})
	if err != nil {
		return err
	}
	if answer.Status != health.HealthCheckResponse_SERVING {
		return fmt.Errorf("service %q is %s", g.Service, answer.Status)
	}
	return nil
}
