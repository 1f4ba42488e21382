package probe

import (
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestTry: a new pod is done when every path answers and the denied ones do not; else it names those that are wrong.
func TestTry(t *testing.T) {
	t.Parallel()
	udp, tcp := echoServer(t)
	closed := "127.0.0.1:1"
	denied := func(id, address string) v1alpha1.Path {
		one := pathTo(id, v1alpha1.UDP, address)
		one.Denied = true
		return one
	}
	good := []v1alpha1.Path{pathTo("udp", v1alpha1.UDP, udp), pathTo("tcp", v1alpha1.TCPNew, tcp),
		denied("denied", closed)}
	if tried := Try(t.Context(), good, time.Minute); tried.Fault() != "" || tried.Paths != 3 ||
		tried.Millis < tryBlocked.Milliseconds() {
		t.Errorf("good: %+v", tried)
	}
	bad := append(slices.Clone(good), pathTo("silent", v1alpha1.UDP, closed), denied("open", udp))
	tried := Try(t.Context(), bad, 5*time.Second)
	if !slices.Equal(tried.Silent, []string{"silent"}) || !slices.Equal(tried.Leaking, []string{"open"}) {
		t.Errorf("bad: %+v", tried)
	}
}
