// TCP flows over point-to-point links in ns-3, packet by packet (Debian: libns3-dev).
//
// Reads whitespace-separated numbers on standard input:
//   nodes links flows queue_packets window_bytes delay_s
//   per link: its two nodes, rate in bit/s
//   per flow: start_s size_bytes n, and the n nodes of its path
// Writes a line per flow: the second at which its last byte was read at the receiver, or -1.
//
// Every node forwards; the path of a flow is laid down as host routes, and acknowledgements take it back. Every queue is
// a plain drop-tail one. TCP is New Reno with segments of 1,448 bytes, time stamps, and delayed acknowledgements.

#include <iostream>
#include <map>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

struct Port {
    uint32_t interface;
    Ipv4Address address;
};

int main() {
    uint32_t nodeCount, linkCount, flowCount, queuePackets, windowBytes;
    double delay;
    std::cin >> nodeCount >> linkCount >> flowCount >> queuePackets >> windowBytes >> delay;

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(windowBytes));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(windowBytes));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(5)));

    NodeContainer nodes;
    nodes.Create(nodeCount);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper staticRouting;
    stack.SetRoutingHelper(staticRouting);
    stack.Install(nodes);

    // ports[a, b]: the interface of node a towards node b.
    std::map<std::pair<uint32_t, uint32_t>, Port> ports;
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    for (uint32_t at = 0; at < linkCount; at++) {
        uint32_t a, b;
        double rate;
        std::cin >> a >> b >> rate;
        PointToPointHelper wire;
        wire.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(rate))));
        wire.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
        wire.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", QueueSizeValue(QueueSize(PACKETS, queuePackets)));
        NetDeviceContainer devices = wire.Install(nodes.Get(a), nodes.Get(b));
        Ipv4InterfaceContainer made = addresses.Assign(devices);
        TrafficControlHelper().Uninstall(devices);  // Assign has put fq_codel before the queue
        addresses.NewNetwork();
        ports[{a, b}] = {made.Get(0).second, made.GetAddress(0)};
        ports[{b, a}] = {made.Get(1).second, made.GetAddress(1)};
    }

    std::map<std::pair<uint32_t, Ipv4Address>, uint32_t> routes;
    auto lay = [&](const std::vector<uint32_t>& path) {
        const Ipv4Address target = ports.at({path[path.size() - 1], path[path.size() - 2]}).address;
        for (size_t hop = 0; hop + 1 < path.size(); hop++) {
            const uint32_t interface = ports.at({path[hop], path[hop + 1]}).interface;
            auto known = routes.emplace(std::make_pair(path[hop], target), interface);
            if (known.first->second != interface) {
                std::cerr << "two flows to one address part at node " << path[hop] << std::endl;
                std::exit(1);
            }
            if (known.second) {
                staticRouting.GetStaticRouting(nodes.Get(path[hop])->GetObject<Ipv4>())
                    ->AddHostRouteTo(target, ports.at({path[hop + 1], path[hop]}).address, interface);
            }
        }
        return target;
    };

    std::vector<double> ends(flowCount, -1);
    for (uint32_t at = 0; at < flowCount; at++) {
        double start;
        uint64_t size;
        size_t length;
        std::cin >> start >> size >> length;
        std::vector<uint32_t> path(length);
        for (auto& node : path) {
            std::cin >> node;
        }
        const InetSocketAddress target(lay(path), 5000 + at);
        const std::vector<uint32_t> back(path.rbegin(), path.rend());
        lay(back);
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5000 + at));
        Ptr<Application> receiver = sink.Install(nodes.Get(path.back())).Get(0);
        auto received = std::make_shared<uint64_t>(0);
        receiver->TraceConnectWithoutContext(
            "Rx", Callback<void, Ptr<const Packet>, const Address&>(
                      [received, size, at, &ends](Ptr<const Packet> packet, const Address&) {
                          *received += packet->GetSize();
                          if (*received >= size) {
                              ends[at] = Simulator::Now().GetSeconds();
                          }
                      }));
        BulkSendHelper sender("ns3::TcpSocketFactory", target);
        sender.SetAttribute("MaxBytes", UintegerValue(size));
        sender.SetAttribute("SendSize", UintegerValue(1448 * 16));
        ApplicationContainer sending = sender.Install(nodes.Get(path.front()));
        sending.Start(Seconds(start));
    }
    if (!std::cin) {
        std::cerr << "the input ends too early" << std::endl;
        return 1;
    }
    Simulator::Stop(Seconds(100));
    Simulator::Run();
    Simulator::Destroy();
    std::cout.precision(12);
    for (double end : ends) {
        std::cout << end << std::endl;
    }
    return 0;
}
