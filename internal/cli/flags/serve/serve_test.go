package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cli"
)

// TestServeFlags serves a folder on a free port, and asks it by another command.
func TestServeFlags(t *testing.T) {
	folder := t.TempDir()
	set := `{"flags": {"bpf": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off", "targeting": {"if": [{"cidr": [{"var": "ip"}, "10.0.0.0/8"]}, "on"]}}}}`
	if err := os.WriteFile(filepath.Join(folder, "flags.json"), []byte(set), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(ctx, []string{"theseus", "flags", "serve", "--source", folder, "--listen", "127.0.0.1:0"},
			cli.Streams{In: strings.NewReader(""), Out: writer, Err: io.Discard})
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`http://[^/]+`).FindString(line)

	var out, complaints bytes.Buffer
	code := cli.Main(ctx, []string{"theseus", "flags", "eval", "bpf", "--source", address, "--set", "ip=10.9.9.9"},
		cli.Streams{In: strings.NewReader(""), Out: &out, Err: &complaints})
	if code != 0 || !strings.HasPrefix(out.String(), "bpf = true\n  variant   on\n  reason    TARGETING_MATCH\n") {
		t.Errorf("exit %d: %s%s", code, out.String(), complaints.String())
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("serve ends with %d", code)
	}
}
