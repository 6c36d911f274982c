package virtual

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// A link is the outer end of a connection: a socket to Postgres or to a pooler, used by plain system calls on the
// stepper's own goroutine.
type link struct {
	fd    int
	key   string // the startup message it began with, for reuse
	hello hello
	buf   []byte
	tmp   []byte // what one read takes
	seen  int    // bytes of buf already looked at
	ready int    // ReadyForQuery among them

	blocks bool // the socket has a timeout, so that block may be used

	// Of a link that leads through Toxiproxy; see hopWait.
	hop   *hopWait
	file  *os.File
	raw   syscall.RawConn
	found progress // what the wait for it has found out: fill need not look again
}

// progress says how far an answer has come.
type progress int

const (
	waiting progress = iota
	answered
	gone // the server has closed the connection
)

var errServerGone = errors.New("the server closed the connection")

// dialLink connects to a Unix socket (a path) or to host:port.
func dialLink(addr string) (*link, error) {
	var sa syscall.Sockaddr = &syscall.SockaddrUnix{Name: addr}
	family := syscall.AF_UNIX
	if !strings.HasPrefix(addr, "/") {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("resolve %s: %w", addr, err)
		}
		if ip := a.IP.To4(); ip != nil {
			in := &syscall.SockaddrInet4{Port: a.Port}
			copy(in.Addr[:], ip)
			sa, family = in, syscall.AF_INET
		} else {
			in := &syscall.SockaddrInet6{Port: a.Port}
			copy(in.Addr[:], a.IP.To16())
			sa, family = in, syscall.AF_INET6
		}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	if err := syscall.Connect(fd, sa); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	tv := syscall.NsecToTimeval(int64(time.Millisecond))
	blocks := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv) == nil
	if family != syscall.AF_UNIX {
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1) // only a matter of speed
	}
	return &link{fd: fd, blocks: blocks}, nil
}

func (l *link) close() {
	if l.file != nil {
		l.file.Close() // the descriptor with it
		l.fd, l.file = -1, nil
	}
	if l.fd >= 0 {
		syscall.Close(l.fd)
		l.fd = -1
	}
}

func (l *link) send(b []byte) error {
	for len(b) > 0 {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			b = b[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			poll([]pollfd{{fd: int32(l.fd), events: pollout}}, time.Millisecond)
		default:
			return fmt.Errorf("send to the database: %w: %w", errServerGone, errno)
		}
	}
	return nil
}

// readable waits up to d, in real time, for something to read.
func (l *link) readable(d time.Duration) bool {
	if l.file != nil && d > 0 {
		return l.hop.wait(l, d)
	}
	p := [1]pollfd{{fd: int32(l.fd), events: pollin}}
	return poll(p[:], d) > 0
}

type pollfd struct {
	fd      int32
	events  int16
	revents int16
}

const (
	pollin  = 1
	pollout = 4
)

// poll waits up to d until one of ps is ready. A raw call keeps the scheduler's hands off: handing the processor over
// would cost more than the wait.
func poll(ps []pollfd, d time.Duration) int {
	ts := syscall.NsecToTimespec(int64(d))
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&ps[0])), uintptr(len(ps)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 {
		return 0 // interrupted: the callers look again
	}
	return int(n)
}

// fill reads what is there, without waiting.
func (l *link) fill() progress {
	if p := l.found; p != waiting {
		l.found = waiting
		return p
	}
	return l.read(syscall.MSG_DONTWAIT)
}

func (l *link) read(flags int) progress {
	if l.tmp == nil {
		l.tmp = make([]byte, 16<<10)
	}
	for {
		n, errno := rawRecv(l.fd, l.tmp, flags)
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			return waiting
		case errno != 0 || n == 0:
			return gone
		default:
			l.buf = append(l.buf, l.tmp[:n]...)
			if n < len(l.tmp) {
				return answered
			}
			flags = syscall.MSG_DONTWAIT
		}
	}
}

func rawRecv(fd int, b []byte, flags int) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags), 0, 0)
	return int(n), errno
}

// block waits for an answer that is expected soon, with one system call where recv makes three. If it does not come, a few of
// the kernel's ticks are lost.
func (l *link) block(want int) (progress, []byte) {
	if !l.blocks || l.file != nil {
		return waiting, nil
	}
	for {
		if b, ok := l.take(want); ok {
			return answered, b
		}
		switch l.read(0) {
		case gone:
			return gone, l.drain()
		case waiting:
			return waiting, nil
		}
	}
}

// take cuts the answer off the buffer once want ReadyForQuery have come, or the server asks back, or refuses for good.
func (l *link) take(want int) ([]byte, bool) {
	for {
		t, body, rest, ok := nextMessage(l.buf[l.seen:], false)
		if !ok {
			return nil, false
		}
		l.seen = len(l.buf) - len(rest)
		if t == 'Z' {
			l.ready++
		}
		if l.ready == want || t == 'G' || t == 'R' && asksBack(body) || t == 'E' && fatal(body) {
			b := l.buf[:l.seen:l.seen]
			l.buf, l.seen, l.ready = l.buf[l.seen:], 0, 0
			return b, true
		}
	}
}

// recv waits up to d for an answer with want ReadyForQuery. When the server has gone, it returns what came before.
func (l *link) recv(want int, d time.Duration) (progress, []byte) {
	for {
		if b, ok := l.take(want); ok {
			return answered, b
		}
		switch l.fill() { // on one processor the server has often answered before send returned
		case gone:
			if b, ok := l.take(want); ok {
				return answered, b
			}
			return gone, l.drain()
		case waiting:
			if d <= 0 || !l.readable(d) {
				return waiting, nil
			}
		}
	}
}

// idle takes the whole messages that came without being asked for. over: the server has closed the connection.
func (l *link) idle() (b []byte, over bool) {
	if l.readable(0) {
		over = l.fill() == gone
	}
	if len(l.buf) == 0 {
		return nil, over
	}
	end := 0
	for {
		_, _, rest, ok := nextMessage(l.buf[end:], false)
		if !ok {
			break
		}
		end = len(l.buf) - len(rest)
	}
	b = l.buf[:end:end]
	l.buf, l.seen, l.ready = l.buf[end:], 0, 0
	return b, over
}

func (l *link) drain() []byte {
	b := l.buf
	l.buf, l.seen, l.ready = nil, 0, 0
	return b
}

// roundTrip sends a request of the engine's own and waits for its answer. It is for statements that wait for nobody.
func (l *link) roundTrip(b []byte, want int) ([]byte, error) {
	if err := l.send(b); err != nil {
		return nil, err
	}
	for deadline := now(); now()-deadline < patience; {
		switch p, out := l.recv(want, time.Millisecond); p {
		case answered:
			return out, nil
		case gone:
			return out, errServerGone
		}
	}
	return nil, fmt.Errorf("the database did not answer within %v", patience)
}

// A serverError is an ErrorResponse to one of the engine's own statements.
type serverError struct{ code, text string }

func (e *serverError) Error() string { return e.text + " (SQLSTATE " + e.code + ")" }

// query runs a simple query of the engine's own and returns its rows as text; NULL is "".
func (l *link) query(sql string) ([][]string, error) {
	b, err := l.roundTrip(message('Q', sql), 1)
	if err != nil {
		return nil, err
	}
	return rowsOf(b)
}

func rowsOf(b []byte) (rows [][]string, err error) {
	for {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return rows, err
		}
		b = rest
		switch t {
		case 'E':
			err = &serverError{field(body, 'C'), field(body, 'M')}
		case 'D':
			var row []string
			for _, v := range columns(body) {
				row = append(row, string(v))
			}
			rows = append(rows, row)
		}
	}
}

// columns are the values of a DataRow; nil is NULL.
func columns(body []byte) (vs [][]byte) {
	if len(body) < 2 {
		return nil
	}
	for b := body[2:]; len(b) >= 4; {
		n := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if n < 0 {
			vs = append(vs, nil)
			continue
		}
		if n > len(b) {
			return vs
		}
		vs, b = append(vs, b[:n:n]), b[n:]
	}
	return vs
}

// openLink starts a session with s under a name.
func openLink(addr string, s startup, name string) (*link, error) {
	l, err := dialLink(addr)
	if err != nil {
		return nil, err
	}
	l.key = s.key()
	raw, err := l.roundTrip(s.named(name), 1)
	if err != nil && (!errors.Is(err, errServerGone) || len(raw) == 0) {
		l.close()
		return nil, err
	}
	if l.hello = parseHello(raw); l.hello.failed == "" && txStatus(raw) == 0 {
		l.close()
		return nil, errPassword
	}
	return l, nil
}

// errPassword says that the server wants to know who we are; see login.go.
var errPassword = errors.New("the server asks for a password: put it into SIMRUN_DSN")

// patience is how long the engine waits, in real time, for something that always comes.
const patience = time.Minute

// sharpTimers has waits of this process end when they should, not 50 µs later, as Linux does by default. Threads that are
// begun later inherit it; for those that are there it needs a privilege, without which some waits last as long as before.
func sharpTimers() {
	const setTimerSlack = 29 // PR_SET_TIMERSLACK
	syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if f, err := os.OpenFile("/proc/"+t.Name()+"/timerslack_ns", os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString("1")
			f.Close()
		}
	}
}

// now is real monotonic time; time.Now would be virtual in the bubble.
func now() time.Duration {
	var ts syscall.Timespec
	const clockMonotonic = 1
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// nap sleeps in real time.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	syscall.Nanosleep(&ts, nil) // interrupted or not: the callers look again
}

// bindExecute is a request that executes a prepared statement with arguments as text.
func bindExecute(name string, args []string) []byte {
	body := append(append([]byte{0}, name...), 0, 0, 0)
	body = binary.BigEndian.AppendUint16(body, uint16(len(args)))
	for _, a := range args {
		body = binary.BigEndian.AppendUint32(body, uint32(len(a)))
		body = append(body, a...)
	}
	body = append(body, 0, 0)
	b := rawMessage('B', body)
	b = append(b, rawMessage('E', []byte{0, 0, 0, 0, 0})...)
	return append(b, rawMessage('S', nil)...)
}

// functionCall is a request to call a function, with arguments in binary.
func functionCall(oid uint32, args ...[]byte) []byte {
	const binaryFormat = 1
	body := binary.BigEndian.AppendUint32(nil, oid)
	body = append(body, 0, 1, 0, binaryFormat)
	body = binary.BigEndian.AppendUint16(body, uint16(len(args)))
	for _, a := range args {
		body = binary.BigEndian.AppendUint32(body, uint32(len(a)))
		body = append(body, a...)
	}
	return rawMessage('F', append(body, 0, binaryFormat))
}

// serverErrorIn is the first error in an answer, nil without one.
func serverErrorIn(out []byte) error {
	for b := out; ; {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return nil
		}
		if b = rest; t == 'E' {
			return &serverError{field(body, 'C'), field(body, 'M')}
		}
	}
}
