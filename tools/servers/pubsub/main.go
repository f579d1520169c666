// A Pub/Sub server for the tests: Google's own in-memory fake, on the loopback interface alone.
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: pubsub PORT")
	}
	// It ends the process with the reason when the port cannot be had.
	server := pstest.NewServerWithAddress("127.0.0.1:" + os.Args[1])
	// As Google's service does each half hour. The fake never hears of a connection that is half
	// open, and may send a letter to its dead stream again and again for as long as that is there.
	// Longer than any test's own streams live, shorter than tests wait.
	server.SetStreamTimeout(4 * time.Minute)
	fmt.Println("listening on", server.Addr)
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	<-stopped
}
