// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/lanyard-dev/lanyard/internal/socketstore"
)

// roleVariable makes the test binary run as another program.
const roleVariable = "LANYARD_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "lanyard-webhook":
		cmd := NewCommand()
		cmd.SetArgs(os.Args[1:])
		err = cmd.ExecuteContext(context.Background())
	case "server":
		err = serveName(os.Args[1], os.Args[2], os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveName answers each connection's request with name.
func serveName(path, address, name string) error {
	listener, err := socketstore.Listen(context.Background(), path, "tcp", address, logr.Discard())
	if err != nil {
		return err
	}
	fmt.Println("listening")
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name) //nolint:gosec // no browser reads it
	})
	return newServer(address, handler, nil, 10, logr.Discard()).Serve(listener)
}

// start runs the test binary in a role, and returns its standard output.
func start(t *testing.T, role string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // these tests themselves
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if role == "lanyard-webhook" {
		cmd.Stderr = io.Discard // its log
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

func startServer(t *testing.T, path, address, name string) *exec.Cmd {
	t.Helper()
	cmd, out := start(t, "server", path, address, name)
	awaitListening(t, out)
	return cmd
}

func awaitListening(t *testing.T, out *bufio.Reader) {
	t.Helper()
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("got %q and %v, want a line", line, err)
	}
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// ask returns the response to a request on a new connection.
func ask(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// tally counts responses by server, and refused connections.
type tally struct {
	mu       sync.Mutex
	answers  map[string]int
	refused  int
	failures []error
}

// run sends requests until ctx is done.
func (c *tally) run(ctx context.Context, address string) {
	for ctx.Err() == nil {
		name, err := ask(context.WithoutCancel(ctx), address)
		c.mu.Lock()
		switch {
		case err == nil:
			c.answers[name]++
		case errors.Is(err, syscall.ECONNREFUSED):
			c.refused++
		default:
			c.failures = append(c.failures, err)
		}
		c.mu.Unlock()
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener := localListener(t)
	defer listener.Close()
	return listener.Addr().String()
}

func localListener(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// socketPath is short: a unix socket's path is at most about 100 bytes long.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "store") //nolint:usetesting // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func TestNoConnectionIsRefusedWhileAKilledServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	// The server starts first, as the first container of the pod does.
	current, out := start(t, "server", path, address, "server 0")
	start(t, "lanyard-webhook", "keep-socket", "--socket="+path)
	awaitListening(t, out)

	const clients, kills = 4, 5
	counts := tally{answers: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range clients {
		group.Go(func() { counts.run(ctx, address) })
	}
	for i := 1; i <= kills; i++ {
		kill(t, current)
		// A connection arrives while no server runs.
		waiting, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("connect while no server runs: %v", err)
		}
		current = startServer(t, path, address, fmt.Sprint("server ", i))
		if _, err := io.WriteString(waiting, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(waiting); err != nil || !strings.HasSuffix(string(answer), fmt.Sprint("server ", i)) {
			t.Errorf("the connection that waited: got %q and %v, want the response of the next server", answer, err)
		}
		_ = waiting.Close()
	}
	cancel()
	group.Wait()
	if counts.refused > 0 {
		t.Errorf("%d connections were refused, want none", counts.refused)
	}
	// Connections that the killed server had accepted are lost.
	if got := len(counts.failures); got > clients*kills {
		t.Errorf("got %d failures, want at most one for each client and kill: %v", got, counts.failures[0])
	}
	if len(counts.answers) < 2 {
		t.Errorf("got answers %v, want several servers", counts.answers)
	}
}

func TestKeepSocketEndsAtOnceOnSIGTERM(t *testing.T) {
	t.Parallel()
	path, address := socketPath(t), freeAddress(t)
	keeper, _ := start(t, "lanyard-webhook", "keep-socket", "--socket="+path)
	kill(t, startServer(t, path, address, "server"))
	begun := time.Now()
	if err := keeper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Wait(); err != nil {
		t.Errorf("got %v, want status 0", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %s, want it at once", took)
	}
	if _, err := ask(t.Context(), address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want the socket closed", err)
	}
}

func TestKeepSocketReportsMistakes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing", "socket")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no path":                      {nil, "--socket: got none, want the path of a unix socket"},
		"a folder that does not exist": {[]string{"--socket=" + missing}, "listen on " + missing + ": "},
		"an argument":                  {[]string{"/run/socket"}, `unknown command "/run/socket"`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(append([]string{"keep-socket"}, test.args...))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestKeepSocketHasItsOwnHelp(t *testing.T) {
	t.Parallel()
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"keep-socket", "--help"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if help := out.String(); !strings.Contains(help, "--socket ") || strings.Contains(help, "--secure-port") {
		t.Errorf("got\n%s", help)
	}
}
