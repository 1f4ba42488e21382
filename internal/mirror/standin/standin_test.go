package standin

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/scratch"
)

// TestServe: every HTTP path is answered with 200, a datagram with itself, and a connection is held; the end of the
// context ends all.
func TestServe(t *testing.T) {
	open, err := Listen(Sockets{TCP: []int{0}, UDP: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- open.Serve(ctx) }()
	_, port, _ := net.SplitHostPort(open.tcp[0].Addr().String())
	held, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for range 2 {
		answer, err := http.Get("http://127.0.0.1:" + port + "/any/path")
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		answer.Body.Close()
	}
	_, port, _ = net.SplitHostPort(open.udp[0].LocalAddr().String())
	packets, err := net.Dial("udp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	buffer := make([]byte, 10)
	if _, err := packets.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := packets.Read(buffer); err != nil || string(buffer[:n]) != "hello" {
		t.Errorf("%q, %v", buffer, err)
	}
	if _, err := io.WriteString(held, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Errorf("the held connection: %v", err)
	}
	if n, err := held.Read(buffer); err != nil || string(buffer[:n])[:4] != "HTTP" {
		t.Errorf("the held connection: %q, %v", buffer[:n], err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if again, err := net.Dial("tcp", open.tcp[0].Addr().String()); err == nil {
		again.Close()
		t.Error("it still listens")
	}
}

// TestTaken: a port that is taken is an error, and the others are closed again.
func TestTaken(t *testing.T) {
	first, err := Listen(Sockets{TCP: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if second, err := Listen(Sockets{TCP: []int{0, first.tcp[0].Addr().(*net.TCPAddr).Port}}); err == nil {
		second.Close()
		t.Error("a port is opened twice")
	}
}

func TestPorts(t *testing.T) {
	if ports, err := Ports("80,443"); err != nil || len(ports) != 2 || ports[1] != 443 {
		t.Errorf("%v, %v", ports, err)
	}
	for _, bad := range []string{"0", "65536", "http", "-1"} {
		if _, err := Ports(bad); err == nil {
			t.Errorf("%q is a port", bad)
		}
	}
}

// TestAdmission: an admission review is allowed, by HTTPS with a certificate that the API server can verify; other
// requests have the answer that they have everywhere.
func TestAdmission(t *testing.T) {
	made, err := scratch.Certify([]string{"hook.shop.svc"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(made.Serving, made.Serving)
	if err != nil {
		t.Fatal(err)
	}
	open, err := Listen(Sockets{TLS: []int{0}, Certificate: &pair})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- open.Serve(ctx) }()
	_, port, _ := net.SplitHostPort(open.tls[0].Addr().String())
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(made.Authority) {
		t.Fatal("no authority")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		ServerName: "hook.shop.svc"}}}
	defer client.CloseIdleConnections()
	for body, want := range map[string]string{
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7"}}`: `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":"7"}}`,
		`{"kind":"AdmissionReview"}`: "a stand-in of theseus rehearse",
		`no JSON`:                    "a stand-in of theseus rehearse",
	} {
		answer, err := client.Post("https://127.0.0.1:"+port+"/validate", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is answered by %q, %v", body, got, err)
		}
	}
	client.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Listen(Sockets{TLS: []int{0}}); err == nil {
		t.Error("a TLS port is opened without a certificate")
	}
}

// TestAsking: a stand-in says of each connection whether it got through, until it is told to stop.
func TestAsking(t *testing.T) {
	// it opens connections, and data does not get through
	stuck, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close() //nolint:errcheck // the test ends
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close() //nolint:errcheck // nothing listens there
	authority, err := scratch.Certify([]string{"hook.shop.svc"})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(authority.Serving, authority.Serving)
	if err != nil {
		t.Fatal(err)
	}
	open, err := Listen(Sockets{TCP: []int{0}, UDP: []int{0}, TLS: []int{0}, Certificate: &certificate})
	if err != nil {
		t.Fatal(err)
	}
	serving, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- open.Serve(serving) }()
	defer func() { end(); <-served }()
	port := func(address net.Addr) string { return address.String()[strings.LastIndex(address.String(), ":"):] }
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close() //nolint:errcheck // the test ends
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close() //nolint:errcheck // nothing answers there
	asks, err := Asks(fmt.Sprintf(
		"3=127.0.0.1%s,4=%s,5=udp/127.0.0.1%s,6=udp/%s,7=udp/%s,8=%s,9=127.0.0.1%s",
		port(open.tcp[0].Addr()), closed.Addr(), port(open.udp[0].LocalAddr()), mute.LocalAddr(), gone.LocalAddr(),
		stuck.Addr(), port(open.tls[0].Addr())))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	from, to := io.Pipe()
	ended := make(chan bool)
	go func() {
		Asking(ctx, asks, to)
		to.Close() //nolint:errcheck // a pipe
		close(ended)
	}()
	lines := bufio.NewScanner(from)
	seen := map[int]bool{}
	for len(seen) < 7 {
		if !lines.Scan() {
			t.Fatal("no line")
		}
		n, through, ok := Answer(lines.Text())
		if !ok || through != (n == 3 || n == 5 || n == 9) {
			t.Errorf("%q", lines.Text())
		}
		seen[n] = true
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, from) }() // a line that is under way
	<-ended
}
