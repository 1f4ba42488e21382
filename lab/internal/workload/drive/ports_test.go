package drive

import (
	"net"
	"testing"
)

func TestAnswersTo(t *testing.T) {
	const table = `ipv4     2 tcp      6 86392 ESTABLISHED src=198.18.0.12 dst=198.18.0.11 sport=11562 dport=6443 src=198.18.0.11 dst=198.18.0.12 sport=6443 dport=11562 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 28 src=198.19.9.128 dst=198.18.0.12 sport=53 dport=11562 [UNREPLIED] src=198.18.0.12 dst=198.19.9.128 sport=11562 dport=53 mark=0 zone=0 use=2
ipv4     2 udp      17 25 src=198.18.0.12 dst=198.18.64.10 sport=11562 dport=53 [UNREPLIED] src=198.19.0.65 dst=198.19.9.128 sport=53 dport=4789 mark=0 zone=0 use=2
`
	ip := net.ParseIP("198.18.0.12")
	const want = "src=198.19.0.65 dst=198.19.9.128 sport=53 dport=4789"
	if got := answersTo(table, &net.UDPAddr{IP: ip, Port: 11562}); got != want {
		t.Errorf("answers are awaited as %q, not %q", got, want)
	}
	if got := answersTo(table, &net.UDPAddr{IP: ip, Port: 1156}); got != "" {
		t.Errorf("of a socket that is not there, answers are awaited as %q", got)
	}
}
