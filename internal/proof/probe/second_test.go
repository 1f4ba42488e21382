package probe

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestSecondResponder: while a target is silent the second responder is asked, and what it answers stands in the gap;
// where it is silent too the gap says nothing of it. A path that is answered asks nobody else.
func TestSecondResponder(t *testing.T) {
	for _, protocol := range []v1alpha1.Protocol{v1alpha1.UDP, v1alpha1.UDPNew, v1alpha1.TCP, v1alpha1.TCPNew} {
		for _, answers := range []bool{true, false} {
			t.Run(string(protocol)+map[bool]string{true: "/answers", false: "/silent"}[answers], func(t *testing.T) {
				t.Parallel()
				first, second := ownPorts(t), ownPorts(t)
				stop := serving(t, first)
				if answers {
					defer serving(t, second)()
				}
				runner := NewRunner(Options{Timeout: 500 * time.Millisecond})
				defer runner.Close()
				address := func(p Ports) string {
					port := p.TCP
					if protocol == v1alpha1.UDP || protocol == v1alpha1.UDPNew {
						port = p.UDP
					}
					return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
				}
				runner.SetPaths([]v1alpha1.Path{{ID: "a", Protocol: protocol, Size: 64, IntervalMillis: 20,
					Target: v1alpha1.Endpoint{Address: address(first)}, Second: address(second)}})
				result := func() v1alpha1.PathResult { return runner.Results()[0] }
				eventually(t, "answers", func() bool { return result().Answered >= 10 })
				stop()
				eventually(t, "a gap of two seconds", func() bool {
					return result().Open != nil && result().Open.Millis > 2000
				})
				defer serving(t, first)()
				eventually(t, "the end of the gap", func() bool {
					r := result()
					return r.Open == nil && len(r.Gaps) > 0
				})
				longest := result().Gaps[0]
				for _, gap := range result().Gaps {
					if gap.Millis > longest.Millis {
						longest = gap
					}
				}
				if got := longest.Second; answers != (got.Answered > 0) || got.SilentMillis > longest.Millis {
					t.Errorf("in a gap of %.0f ms: %+v", longest.Millis, got)
				}
			})
		}
	}
}

// ownPorts are ports of loopback that nobody else has.
func ownPorts(t *testing.T) Ports {
	t.Helper()
	port := func() int {
		address, err := net.ResolveUDPAddr("udp", closedPort(t))
		if err != nil {
			t.Fatal(err)
		}
		return address.Port
	}
	return Ports{UDP: port(), TCP: port()}
}

// serving answers probes until the function that it returns is called.
func serving(t *testing.T, ports Ports) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, "127.0.0.1", ports) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
