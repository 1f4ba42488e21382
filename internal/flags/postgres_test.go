package flags

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// postgresBinaries is where Debian puts them.
const postgresBinaries = "/usr/lib/postgresql/15/bin"

// withoutPostgres, set to anything, leaves out what needs PostgreSQL.
const withoutPostgres = "THESEUS_NO_POSTGRES"

// postgres is a real server on a socket in a folder of its own; it ends with the test.
type postgres struct {
	folder  string
	process *exec.Cmd
	as      *syscall.SysProcAttr
}

func startPostgres(t *testing.T) *postgres {
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
	p := &postgres{folder: folder, as: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if os.Getuid() == 0 {
		p.becomeUser(t)
	}
	initdb := exec.Command(filepath.Join(postgresBinaries, "initdb"), "-D", filepath.Join(folder, "data"), "-A", "trust", "-U", "theseus", "-E", "UTF8", "--locale=C", "-N")
	initdb.SysProcAttr, initdb.Dir = p.as, folder
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	p.start(t)
	t.Cleanup(func() { p.stop(t) })
	return p
}

// becomeUser runs the server as Debian's user for it: it refuses to run as root.
func (p *postgres) becomeUser(t *testing.T) {
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

func (p *postgres) address() string {
	return "host=" + p.folder + " user=theseus dbname=postgres"
}

func (p *postgres) start(t *testing.T) {
	t.Helper()
	p.process = exec.Command(filepath.Join(postgresBinaries, "postgres"), "-D", filepath.Join(p.folder, "data"), "-k", p.folder,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=20")
	p.process.SysProcAttr, p.process.Dir = p.as, p.folder
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", p.address())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	eventually(t, "PostgreSQL is up", func() bool { return db.PingContext(context.Background()) == nil })
}

// stop ends the server at once, as a crash does.
func (p *postgres) stop(t *testing.T) {
	t.Helper()
	if p.process == nil {
		return
	}
	if err := p.process.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Error(err)
	}
	_ = p.process.Wait() // it says that it was told to quit
	p.process = nil
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
