// Package pgtest starts a real PostgreSQL server for tests.
package pgtest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// postgresBinaries is where Debian installs PostgreSQL's programs.
const postgresBinaries = "/usr/lib/postgresql/15/bin"

// withoutPostgres is an environment variable; if set, tests that need PostgreSQL are skipped.
const withoutPostgres = "THESEUS_NO_POSTGRES"

// Server is a real server on a socket in its own folder; it stops at the end of the test.
type Server struct {
	folder  string
	process *exec.Cmd
	as      *syscall.SysProcAttr
}

// Start starts a server, or skips the test if THESEUS_NO_POSTGRES is set.
func Start(t *testing.T) *Server {
	t.Helper()
	if os.Getenv(withoutPostgres) != "" {
		t.Skipf("%s is set", withoutPostgres)
	}
	if _, err := os.Stat(filepath.Join(postgresBinaries, "postgres")); err != nil {
		t.Fatalf("%v: install Debian's postgresql-15 (make setup), or set %s=1 to go without", err, withoutPostgres)
	}
	folder, err := os.MkdirTemp("", "theseus-pg-") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	p := &Server{folder: folder, as: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if os.Getuid() == 0 {
		p.becomeUser(t)
	}
	initdb := exec.Command(filepath.Join(postgresBinaries, "initdb"), "-D", filepath.Join(folder, "data"), "-A",
		"trust", "-U", "theseus", "-E", "UTF8", "--locale=C", "-N")
	initdb.SysProcAttr, initdb.Dir = p.as, folder
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	p.Restart(t)
	t.Cleanup(func() { p.Stop(t) })
	return p
}

// becomeUser runs the server as Debian's user postgres, because it refuses to run as root.
func (p *Server) becomeUser(t *testing.T) {
	t.Helper()
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Chown(p.folder, uid, gid); err != nil {
		t.Fatal(err)
	}
	p.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// Address returns the server's address: postgres://...
func (p *Server) Address() string {
	return "postgres://theseus@/postgres?host=" + url.QueryEscape(p.folder)
}

// Restart starts the server again with the same data.
func (p *Server) Restart(t *testing.T) {
	t.Helper()
	p.process = exec.Command(filepath.Join(postgresBinaries, "postgres"), "-D",
		filepath.Join(p.folder, "data"), "-k", p.folder, "-c", "listen_addresses=", "-c",
		"fsync=off", "-c", "max_connections=20")
	p.process.SysProcAttr, p.process.Dir = p.as, p.folder
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.Now().Add(time.Minute); db.PingContext(context.Background()) != nil; time.Sleep(
		5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("PostgreSQL does not start")
		}
	}
}

// Stop kills the server immediately, like a crash.
func (p *Server) Stop(t *testing.T) {
	t.Helper()
	if p.process == nil {
		return
	}
	if err := p.process.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Error(err)
	}
	_ = p.process.Wait() // returns an error because the server was killed
	p.process = nil
}
