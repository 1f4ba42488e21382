package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// listing prints a tar as one line per entry.
func listing(t *testing.T, r io.Reader) string {
	t.Helper()
	var out strings.Builder
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%c %04o %d %s", h.Typeflag, h.Mode, h.Uid, h.Name)
		if h.Linkname != "" {
			fmt.Fprintf(&out, " > %s", h.Linkname)
		}
		fmt.Fprintln(&out)
	}
}

func TestWrite(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []File{
		{Path: "/opt/bin/alias", Mode: 0o755, Hard: "/opt/bin/real"},
		Program("/opt/bin/real", source),
		Symlink("/bin", "usr/bin"),
		Directory("/tmp", 0o777|os.ModeSticky),
		{Path: "/status/status.json", Mode: 0o644, Owner: 999},
		{Path: "/var/log/pipe", Mode: 0o644 | os.ModeNamedPipe},
	}
	const want = `2 0777 0 bin > usr/bin
5 0755 0 opt/
5 0755 0 opt/bin/
0 0755 0 opt/bin/real
5 0755 0 status/
0 0644 999 status/status.json
5 1777 0 tmp/
5 0755 0 var/
5 0755 0 var/log/
6 0644 0 var/log/pipe
1 0755 0 opt/bin/alias > opt/bin/real
`
	var first, second bytes.Buffer
	if err := Write(&first, files); err != nil {
		t.Fatal(err)
	}
	if err := Write(&second, files); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files make two different layers")
	}
	if got := listing(t, &first); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
