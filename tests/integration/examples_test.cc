// The example programs from a user's view: their output, its order, and the death of one side. At the end, the C++
// header that they use, call by call.
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "integration/daemon_fixture.h"
#include <gshm/gshm.hpp>

namespace gshm::core::test {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

constexpr std::string_view kProducerOnCuda[] = {
    "=== CUDA VMM Producer ===",
    "Using CUDA device 0: .+",
    "VMM support: yes",
    "Memory granularity: [1-9][0-9]* bytes",
    "Buffer size: 1048576 bytes, aligned size: [1-9][0-9]* bytes",
    "Created physical memory allocation",
    "Reserved virtual address space at 0x[0-9a-f]+",
    "Mapped physical memory to virtual address",
    "Set read/write access permissions",
    "Generated 262144 test integers",
    "Copied test data to GPU",
    "Exported allocation as FD: [0-9]+",
    "Waiting for consumer connection\\.\\.\\.",
    "Consumer connected",
    "Sent FD and size metadata to consumer",
    "Consumer verified data successfully!",
    "Cleanup complete",
};
constexpr std::string_view kConsumerOnCuda[] = {
    "=== CUDA VMM Consumer ===",
    "Using CUDA device 0: .+",
    "Connecting to producer\\.\\.\\.",
    "Connected to producer",
    "Received FD: [0-9]+, size: [1-9][0-9]* bytes",
    "Imported allocation handle from FD",
    "Reserved virtual address space at 0x[0-9a-f]+",
    "Mapped imported memory to virtual address",
    "Set read/write access permissions",
    "Copied 1048576 bytes from GPU to host",
    "Data verification PASSED \\(262144 integers verified\\)",
    "Sent acknowledgment to producer",
    "Cleanup complete",
};

// The expected lines on host, without a GPU.
Lines on_host(std::span<const std::string_view> on_cuda) {
    Lines lines;
    for (const auto line : on_cuda) {
        if (line.starts_with("VMM support")) continue;
        if (line.starts_with("Using CUDA")) lines.emplace_back("Using host memory");
        else if (line == "Copied test data to GPU") lines.emplace_back("Copied test data to host memory");
        else if (line.starts_with("Copied 1048576")) lines.emplace_back("Copied 1048576 bytes from shared host memory");
        else lines.emplace_back(line);
    }
    return lines;
}
Lines on_cuda(std::span<const std::string_view> lines) {
    return {lines.begin(), lines.end()};
}

void expect_lines(const std::string& text, const Lines& patterns) {
    std::istringstream stream(text);
    std::string line;
    size_t next = 0;
    for (; std::getline(stream, line); ++next) {
        ASSERT_LT(next, patterns.size()) << "more lines than expected: " << line;
        EXPECT_TRUE(std::regex_match(line, std::regex(patterns[next]))) << line << "\n  is not: " << patterns[next];
    }
    EXPECT_EQ(next, patterns.size()) << text;
}

std::string read_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

class ExamplesTest : public ::testing::Test, protected DaemonFixture {
protected:
    // A program whose output is in a file, so that it can be observed while it runs.
    struct Program {
        ChildProcess process;
        std::string log_path;

        bool prints(std::string_view text, std::chrono::seconds time = 30s) {
            const auto deadline = std::chrono::steady_clock::now() + time;
            while (std::chrono::steady_clock::now() < deadline) {
                const bool ended = !process.running();
                if (output().find(text) != std::string::npos) return true;
                if (ended) return false;
                std::this_thread::sleep_for(2ms);
            }
            return false;
        }
        std::string output() const { return read_file(log_path); }
        int end(std::chrono::seconds time = 30s) { return process.wait(time); }
    };

    void start_program(Program& program, const std::string& name, const Lines& args, const Lines& env = {}) {
        program.log_path = scratch() + "/" + name + "-" + std::to_string(++programs_) + ".log";
        Lines argv = {bin(name)};
        argv.insert(argv.end(), args.begin(), args.end());
        ASSERT_TRUE(program.process.spawn(argv, env, program.log_path));
    }
    void start_producer(Program& program, const Lines& more = {"--device", "host"}, const Lines& env = {}) {
        Lines args = {"--socket", socket()};
        args.insert(args.end(), more.begin(), more.end());
        start_program(program, "producer", args, env);
        ASSERT_TRUE(program.prints("Waiting for consumer connection...")) << program.output();
    }
    RunResult run_program(const std::string& name, const Lines& args, const Lines& env = {}) {
        Lines argv = {bin(name)};
        argv.insert(argv.end(), args.begin(), args.end());
        ChildProcess child;
        if (!child.spawn(argv, env)) return {};
        return child.finish();
    }
    RunResult run_consumer(const Lines& more = {"--device", "host"}, const Lines& env = {}) {
        Lines args = {"--socket", socket()};
        args.insert(args.end(), more.begin(), more.end());
        return run_program("consumer", args, env);
    }
    std::string socket() const { return scratch() + "/example.sock"; }
    static std::string plain_peer() { return GSHM_SOURCE_DIR "/tests/integration/plain_peer.py"; }
    bool socket_exists() const { return std::filesystem::exists(std::filesystem::symlink_status(socket())); }

    // This process as one end of the connection.
    int connect_as_consumer() {
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        const auto address = socket_address();
        EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return fd;
    }
    int listen_as_producer() {
        const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        const auto address = socket_address();
        EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(::listen(fd, 1), 0);
        return fd;
    }

private:
    sockaddr_un socket_address() const {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, socket().c_str(), socket().size() + 1);
        return address;
    }
    int programs_ = 0;
};

TEST_F(ExamplesTest, ProducerAndConsumerOnHost) {
    Program producer;
    start_producer(producer);
    const auto consumer = run_consumer();
    EXPECT_EQ(consumer.exit_code, 0) << consumer.err;
    EXPECT_EQ(consumer.err, "");
    EXPECT_EQ(producer.end(), 0) << producer.output();
    expect_lines(producer.output(), on_host(kProducerOnCuda));
    expect_lines(consumer.out, on_host(kConsumerOnCuda));
    EXPECT_FALSE(socket_exists());
}

TEST_F(ExamplesTest, ProducerAndConsumerOnTheFirstGpuByDefault) {
    const auto env = fake_cuda_env(2);
    Program producer;
    start_producer(producer, {}, env);
    const auto consumer = run_consumer({}, env);
    EXPECT_EQ(consumer.exit_code, 0) << consumer.err;
    EXPECT_EQ(producer.end(), 0) << producer.output();
    expect_lines(producer.output(), on_cuda(kProducerOnCuda));
    expect_lines(consumer.out, on_cuda(kConsumerOnCuda));
    EXPECT_FALSE(socket_exists());
}

TEST_F(ExamplesTest, ProducerAndConsumerOnAnotherGpu) {
    const auto env = fake_cuda_env(2);
    Program producer;
    start_producer(producer, {"--device", "cuda:1"}, env);
    const auto consumer = run_consumer({"--device", "cuda:1"}, env);
    EXPECT_EQ(consumer.exit_code, 0) << consumer.err;
    EXPECT_NE(consumer.out.find("Using CUDA device 1: "), std::string::npos) << consumer.out;
    EXPECT_EQ(producer.end(), 0) << producer.output();
}

TEST_F(ExamplesTest, ConsumerOnAnotherDeviceIsToldWhichToChoose) {
    const auto env = fake_cuda_env(2);
    Program producer;
    start_producer(producer, {"--device", "cuda:1"}, env);
    const auto consumer = run_consumer({"--device", "cuda:0"}, env);
    EXPECT_EQ(consumer.exit_code, 1);
    EXPECT_NE(consumer.err.find("the producer's memory is on cuda:1"), std::string::npos) << consumer.err;
    EXPECT_EQ(producer.end(), 1) << producer.output();
}

TEST_F(ExamplesTest, UnknownDevice) {
    const auto producer = run_program("producer", {"--socket", socket(), "--device", "tpu:0"});
    EXPECT_EQ(producer.exit_code, 1);
    EXPECT_NE(producer.err.find("there is no device \"tpu:0\""), std::string::npos) << producer.err;
    EXPECT_NE(producer.err.find("host"), std::string::npos) << producer.err;
}

TEST_F(ExamplesTest, BothSpeakThePlainWire) {
    for (const Lines& device : {Lines{"--device", "host"}, Lines{}}) {
        const Lines env = device.empty() ? Lines(fake_cuda_env(1)) : Lines{};
        Lines args = device;
        args.insert(args.end(), {"--wire", "plain"});
        Program producer;
        start_producer(producer, args, env);
        const auto consumer = run_consumer(args, env);
        EXPECT_EQ(consumer.exit_code, 0) << consumer.err;
        EXPECT_EQ(producer.end(), 0) << producer.output();
    }
}

// A peer that knows nothing of gshm.
TEST_F(ExamplesTest, TheProducerServesAForeignConsumer) {
    Program producer;
    start_producer(producer, {"--device", "host", "--wire", "plain", "--count"});
    ChildProcess consumer;
    ASSERT_TRUE(consumer.spawn({"/usr/bin/python3", plain_peer(), "consumer", socket()}));
    EXPECT_EQ(consumer.finish().exit_code, 0);
    EXPECT_EQ(producer.end(), 0) << producer.output();
}

TEST_F(ExamplesTest, TheConsumerReadsFromAForeignProducer) {
    Program producer;
    producer.log_path = scratch() + "/foreign.log";
    ASSERT_TRUE(
        producer.process.spawn({"/usr/bin/python3", plain_peer(), "producer", socket()}, {}, producer.log_path));
    ASSERT_TRUE(producer.prints("Waiting for consumer connection...")) << producer.output();
    const auto consumer = run_consumer({"--device", "host", "--wire", "plain"});
    EXPECT_EQ(consumer.exit_code, 0) << consumer.err;
    EXPECT_EQ(producer.end(), 0) << producer.output();
}

TEST_F(ExamplesTest, AnUnknownOrAnotherWireIsRefused) {
    EXPECT_EQ(run_program("producer", {"--wire", "smoke"}).exit_code, 2);
    EXPECT_EQ(run_program("consumer", {"--wire", "smoke"}).exit_code, 2);
    Program producer;
    start_producer(producer);
    const auto consumer = run_consumer({"--device", "host", "--wire", "plain"});
    EXPECT_EQ(consumer.exit_code, 1);
    EXPECT_NE(consumer.err.find("--wire"), std::string::npos) << consumer.err;
    EXPECT_EQ(run_consumer().exit_code, 0);
    EXPECT_EQ(producer.end(), 0) << producer.output();
}

TEST_F(ExamplesTest, ConsumerFirstIsToldToStartTheProducer) {
    const auto consumer = run_consumer();
    EXPECT_EQ(consumer.exit_code, 1);
    EXPECT_NE(consumer.err.find("start producer first"), std::string::npos) << consumer.err;
}

TEST_F(ExamplesTest, SocketFileOfAKilledProducerIsTakenOver) {
    Program killed;
    start_producer(killed);
    killed.process.signal(SIGKILL);
    EXPECT_EQ(killed.end(), 128 + SIGKILL);
    EXPECT_TRUE(socket_exists());
    EXPECT_NE(run_consumer().err.find("start producer first"), std::string::npos);

    Program producer;
    start_producer(producer);
    EXPECT_EQ(run_consumer().exit_code, 0);
    EXPECT_EQ(producer.end(), 0) << producer.output();
    EXPECT_FALSE(socket_exists());
}

TEST_F(ExamplesTest, FileThatIsNoSocketIsLeftAlone) {
    std::ofstream(socket()) << "precious";
    const auto producer = run_program("producer", {"--socket", socket(), "--device", "host"});
    EXPECT_EQ(producer.exit_code, 1);
    EXPECT_NE(producer.err.find("is not a socket"), std::string::npos) << producer.err;
    EXPECT_EQ(read_file(socket()), "precious");
}

TEST_F(ExamplesTest, SecondProducerDoesNotDisturbTheFirst) {
    Program first;
    start_producer(first);
    const auto second = run_program("producer", {"--socket", socket(), "--device", "host"});
    EXPECT_EQ(second.exit_code, 1);
    EXPECT_NE(second.err.find("another producer is listening"), std::string::npos) << second.err;
    EXPECT_EQ(run_consumer().exit_code, 0);
    EXPECT_EQ(first.end(), 0) << first.output();
}

TEST_F(ExamplesTest, StrangersAreSentAwayAndTheWaitGoesOn) {
    Program producer;
    start_producer(producer);
    const int silent = connect_as_consumer();
    ::close(silent);
    const int wrong = connect_as_consumer();
    EXPECT_EQ(::send(wrong, "GET / HTTP/1.0", 14, MSG_NOSIGNAL), 14);
    char byte;
    EXPECT_EQ(::recv(wrong, &byte, 1, 0), 0);  // the producer closed the connection
    ::close(wrong);
    EXPECT_EQ(run_consumer().exit_code, 0);
    EXPECT_EQ(producer.end(), 0) << producer.output();
}

TEST_F(ExamplesTest, ProducerKilledMidway) {
    Program producer, consumer;
    start_producer(producer);
    producer.process.signal(SIGSTOP);  // the consumer stays between connecting and the offer
    start_program(consumer, "consumer", {"--device", "host", "--socket", socket()});
    ASSERT_TRUE(consumer.prints("Connected to producer")) << consumer.output();
    producer.process.signal(SIGKILL);
    EXPECT_EQ(consumer.end(), 1);
    EXPECT_NE(consumer.output().find("consumer: "), std::string::npos) << consumer.output();
}

TEST_F(ExamplesTest, ConsumerKilledMidway) {
    Program producer, consumer;
    start_producer(producer);
    producer.process.signal(SIGSTOP);
    start_program(consumer, "consumer", {"--device", "host", "--socket", socket()});
    ASSERT_TRUE(consumer.prints("Connected to producer")) << consumer.output();
    consumer.process.signal(SIGKILL);
    EXPECT_EQ(consumer.end(), 128 + SIGKILL);
    producer.process.signal(SIGCONT);
    EXPECT_EQ(producer.end(), 1);
    EXPECT_NE(producer.output().find("producer: "), std::string::npos) << producer.output();
    EXPECT_FALSE(socket_exists());
}

TEST_F(ExamplesTest, ProducerThatSaysNothingTimesOut) {
    const int listener = listen_as_producer();
    const auto consumer = run_consumer({"--device", "host", "--timeout", "1"});
    EXPECT_EQ(consumer.exit_code, 1);
    EXPECT_NE(consumer.err.find("in time"), std::string::npos) << consumer.err;
    ::close(listener);
}

TEST_F(ExamplesTest, NonsenseFromTheProducerIsRefused) {
    const int listener = listen_as_producer();
    const std::string wrong_size = "short";
    const std::string wrong_magic(104, 'x');  // the size of an offer
    for (const auto& [message, complaint] :
         {std::pair(wrong_size, "wrong size"), std::pair(wrong_magic, "wrong magic")}) {
        Program consumer;
        start_program(consumer, "consumer", {"--device", "host", "--socket", socket()});
        const int peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        EXPECT_EQ(::send(peer, message.data(), message.size(), MSG_NOSIGNAL), static_cast<ssize_t>(message.size()));
        EXPECT_EQ(consumer.end(), 1);
        EXPECT_NE(consumer.output().find(complaint), std::string::npos) << consumer.output();
        ::close(peer);
    }
    ::close(listener);
}

TEST_F(ExamplesTest, SignalsLeaveNothingBehind) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        Program producer;
        start_producer(producer);
        EXPECT_TRUE(socket_exists());
        producer.process.signal(number);
        EXPECT_EQ(producer.end(), 130) << number;
        EXPECT_FALSE(socket_exists()) << number;
    }
}

TEST_F(ExamplesTest, ProducerGivesUpAfterItsTimeout) {
    const auto producer = run_program("producer", {"--socket", socket(), "--device", "host", "--timeout", "1"});
    EXPECT_EQ(producer.exit_code, 1);
    EXPECT_NE(producer.err.find("in time"), std::string::npos) << producer.err;
    EXPECT_FALSE(socket_exists());
}

TEST_F(ExamplesTest, WrongCommandLines) {
    for (const std::string name : {"producer", "consumer", "weights_writer", "weights_reader"}) {
        EXPECT_EQ(run_program(name, {"--no-such-option"}).exit_code, 2) << name;
        EXPECT_EQ(run_program(name, {"--help"}).exit_code, 0) << name;
    }
    EXPECT_EQ(run_program("producer", {"--socket"}).exit_code, 2);
    EXPECT_EQ(run_program("producer", {"--timeout", "soon"}).exit_code, 2);
    EXPECT_EQ(run_program("producer", {"--socket", std::string(200, 'x'), "--device", "host"}).exit_code, 1);
}

// ---- with a daemon ----

class WeightsTest : public ExamplesTest {
protected:
    void start_writer(Program& program, const Lines& more, const Lines& env) {
        Lines args = {"--dir", dir()};
        args.insert(args.end(), more.begin(), more.end());
        start_program(program, "weights_writer", args, env);
        ASSERT_TRUE(program.prints("Holding")) << program.output();
    }
    RunResult read(const Lines& more, const Lines& env) {
        Lines args = {"--dir", dir()};
        args.insert(args.end(), more.begin(), more.end());
        return run_program("weights_reader", args, env);
    }
    void survives_its_writer(const std::string& device, const Lines& env) {
        Program writer;
        start_writer(writer, {"--device", device}, env);
        const auto check = [&](const Lines& more) {
            const auto reader = read(more, env);
            EXPECT_EQ(reader.exit_code, 0) << reader.out << reader.err;
            for (const std::string& text : {"bytes on " + device, std::string("shape = [512, 512]"),
                                            std::string("dtype = uint32"), std::string("PASSED")})
                EXPECT_NE(reader.out.find(text), std::string::npos) << text << "\n" << reader.out;
        };
        check({});
        check({"--no-map"});
        writer.process.signal(SIGKILL);
        EXPECT_EQ(writer.end(), 128 + SIGKILL);
        check({});
        check({"--no-map"});
    }
};

TEST_F(WeightsTest, SealedDataOutlivesItsWriterOnHost) {
    ASSERT_TRUE(start()) << log();
    survives_its_writer("host", {});
}

TEST_F(WeightsTest, SealedDataOutlivesItsWriterOnCuda) {
    const auto env = fake_cuda_env(1);
    ASSERT_TRUE(start({"--device", "cuda:0"}, env)) << log();
    survives_its_writer("cuda:0", env);
}

TEST_F(WeightsTest, ReaderWaitsForTheWriter) {
    ASSERT_TRUE(start()) << log();
    Program reader, writer;
    start_program(reader, "weights_reader", {"--dir", dir(), "--timeout", "30"});
    start_writer(writer, {}, {});
    EXPECT_EQ(reader.end(), 0) << reader.output();
}

TEST_F(WeightsTest, ReaderGivesUpOnDataThatIsNeverSealed) {
    ASSERT_TRUE(start()) << log();
    Program writer;
    start_writer(writer, {"--no-seal"}, {});
    const auto reader = read({"--timeout", "1"}, {});
    EXPECT_EQ(reader.exit_code, 1);
    EXPECT_NE(reader.err, "");

    writer.process.signal(SIGKILL);
    writer.end();
    int stat = 0;
    for (int i = 0; i < 500 && (stat = run_cli({"stat", "demo/weights"}).exit_code) == 0; ++i)
        std::this_thread::sleep_for(10ms);
    EXPECT_NE(stat, 0) << "an unsealed object of a killed process is still there";
}

TEST_F(WeightsTest, WithoutADaemonBothSayWhatIsWrong) {
    for (const std::string name : {"weights_writer", "weights_reader"}) {
        const auto result = run_program(name, {"--dir", dir()});
        EXPECT_EQ(result.exit_code, 1) << name;
        EXPECT_NE(result.err.find(dir()), std::string::npos) << result.err;
    }
}

// ---- the demo ----

class DemoTest : public ExamplesTest {
protected:
    static std::string script() { return std::string(GSHM_SOURCE_DIR) + "/examples/demo.sh"; }
    Lines demo_env(Lines env = {}) {
        std::filesystem::create_directory(tmp());
        env.push_back("GSHM_BIN=" + build_path("bin"));
        env.push_back("TMPDIR=" + tmp());
        return env;
    }
    std::string tmp() const { return scratch() + "/tmp"; }

    void expect_nothing_left() {
        EXPECT_TRUE(std::filesystem::is_empty(tmp()));
        for (const auto& process : std::filesystem::directory_iterator("/proc")) {
            const auto folder = process.path().string();
            if (read_file(folder + "/environ").find("TMPDIR=" + tmp()) != std::string::npos)
                ADD_FAILURE() << "still running: " << read_file(folder + "/comm");
        }
    }
    void runs_through(const std::string& device, const Lines& env) {
        ChildProcess demo;
        ASSERT_TRUE(demo.spawn({"/bin/bash", script()}, demo_env(env)));
        const auto result = demo.finish();
        EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
        EXPECT_NE(result.out.find("Demo PASSED"), std::string::npos) << result.out << result.err;
        EXPECT_NE(result.out.find(" on " + device), std::string::npos) << result.out;
        EXPECT_EQ(result.err, "");
        expect_nothing_left();
    }
};

TEST_F(DemoTest, OnHost) {
    runs_through("host", fake_cuda_env(0));
}

TEST_F(DemoTest, OnCuda) {
    runs_through("cuda:0", fake_cuda_env(1));
}

TEST_F(DemoTest, StoppedMidwayLeavesNothingBehind) {
    Program demo;
    demo.log_path = scratch() + "/demo.log";
    ASSERT_TRUE(demo.process.spawn({"/bin/bash", script()}, demo_env(), demo.log_path));
    ASSERT_TRUE(demo.prints("== 3.")) << demo.output();
    demo.process.signal(SIGTERM);
    EXPECT_EQ(demo.end(), 143) << demo.output();
    EXPECT_NE(demo.output().find("Demo STOPPED"), std::string::npos) << demo.output();
    expect_nothing_left();
}

TEST_F(DemoTest, SaysWhatToDoWithoutABuild) {
    ChildProcess demo;
    ASSERT_TRUE(demo.spawn({"/bin/bash", script()}, {"GSHM_BIN=" + scratch()}));
    const auto result = demo.finish();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("./dev build"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace gshm::core::test
